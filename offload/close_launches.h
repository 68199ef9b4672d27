// A gradient's closing cut into launches of the device's kernel, whose blocks run in any order. A closed gradient may
// overwrite the start of the fp32 range that it comes from, so a launch ends where one of its tiles would write what
// another of them has still to read: from a range's start, launches of 1, 1, 2, 4, 8, ... tiles. Pure; no allocation.
#pragma once
#include <cstdint>
#include <span>

#include "offload/device_kernels.h"

namespace sluice {

struct CloseLaunch {
  kernels::CloseWork work;  // without tile_sums
  int64_t tiles = 0;        // 0: all is launched
};

class CloseLaunches {
 public:
  struct Gradient {
    const float* open = nullptr;
    float scale = 1;
    DType dtype = DType::kBf16;
    std::span<const ClosedPiece> pieces;
  };
  // Pieces but the last hold 128 elements or more, or none (a check fails). They must stay while launches are taken.
  explicit CloseLaunches(const Gradient& gradient);
  // The next tiles, no more than `most_tiles`.
  CloseLaunch next(int64_t most_tiles);

 private:
  struct Addresses {
    uintptr_t begin = 0, end = 0;
    bool overlaps(const Addresses& other) const { return begin < other.end && other.begin < end; }
  };
  // A piece's part of the tile that begins at `first`.
  struct Part {
    Addresses written;
    int64_t elements = 0;
  };
  Addresses read_by(int64_t first_tile, int64_t end_tile) const;
  Part part_at(size_t piece, int64_t piece_first, int64_t first, int64_t end) const;
  bool add_tile(CloseLaunch& launch);

  Gradient gradient_;
  int64_t elements_ = 0;
  int64_t tile_ = 0;         // next
  size_t piece_ = 0;         // that holds its first element
  int64_t piece_first_ = 0;  // that piece's first element
};

}  // namespace sluice
