// A gradient's closing cut into launches of the device's kernel (close_kernel.h): one, unless it has more tiles or
// pieces than a launch takes. Pure; no allocation.
#pragma once
#include <cstdint>
#include <span>

#include "offload/close_kernel.h"

namespace sluice {

class CloseLaunches {
 public:
  // Pieces but the first and the last hold 128 elements or more, or none; each goes to where the open gradient is not,
  // or to no later than it comes from (checks fail). They must stay while launches are taken.
  explicit CloseLaunches(const Closing& gradient);
  // The next tiles, no more than `most_tiles`; none: all is launched. Without tile_sums and progress.
  kernels::CloseWork next(int64_t most_tiles);

 private:
  void check(const ClosedPiece& piece, int64_t first) const;

  Closing gradient_;
  int64_t elements_ = 0;
  int64_t tile_ = 0;         // next
  size_t piece_ = 0;         // that holds its first element
  int64_t piece_first_ = 0;  // that piece's first element
};

}  // namespace sluice
