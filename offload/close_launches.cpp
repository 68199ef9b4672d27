#include "offload/close_launches.h"

#include <algorithm>

#include "core/errors.h"

namespace sluice {

using kernels::kTileElements;

CloseLaunches::CloseLaunches(const Gradient& gradient) : gradient_(gradient) {
  constexpr int64_t kLeastElements = 128;
  int64_t before = kLeastElements;
  for (const ClosedPiece& piece : gradient.pieces) {
    if (piece.elements == 0) continue;
    SLUICE_CHECK(before >= kLeastElements, "a piece that is not the last one is too short");
    before = piece.elements;
    elements_ += piece.elements;
  }
}

CloseLaunches::Addresses CloseLaunches::read_by(int64_t first_tile, int64_t end_tile) const {
  const auto open = reinterpret_cast<uintptr_t>(gradient_.open);
  const int64_t end = std::min(end_tile * kTileElements, elements_);
  return {open + static_cast<uintptr_t>(first_tile * kTileElements * 4), open + static_cast<uintptr_t>(end * 4)};
}

CloseLaunches::Part CloseLaunches::part_at(size_t piece, int64_t piece_first, int64_t first, int64_t end) const {
  const int64_t element_bytes = bytes_of(gradient_.dtype);
  const auto to = reinterpret_cast<uintptr_t>(gradient_.pieces[piece].to);
  const int64_t elements = std::min(end, piece_first + gradient_.pieces[piece].elements) - first;
  const uintptr_t begin = to + static_cast<uintptr_t>((first - piece_first) * element_bytes);
  return {{begin, begin + static_cast<uintptr_t>(elements * element_bytes)}, elements};
}

// False, and nothing has changed, where the next tile must wait for another launch.
bool CloseLaunches::add_tile(CloseLaunch& launch) {
  kernels::CloseWork& work = launch.work;
  const int64_t end = std::min((tile_ + 1) * kTileElements, elements_);
  const Addresses others = read_by(work.first_tile, tile_);
  size_t piece = piece_;
  int64_t piece_first = piece_first_;
  int targets = work.target_count;
  for (int64_t first = tile_ * kTileElements; first < end;) {
    const Part part = part_at(piece, piece_first, first, end);
    if (part.elements > 0) {
      if (launch.tiles > 0 && part.written.overlaps(others)) return false;
      if (targets == 0 || work.targets[targets - 1].first != piece_first) {
        if (targets == kernels::CloseWork::kMostTargets) return false;
        work.targets[targets++] = {gradient_.pieces[piece].to, piece_first};
      }
      first += part.elements;
    }
    if (first == piece_first + gradient_.pieces[piece].elements) piece_first += gradient_.pieces[piece++].elements;
  }
  work.target_count = targets;
  piece_ = piece;
  piece_first_ = piece_first;
  ++tile_;
  ++launch.tiles;
  return true;
}

CloseLaunch CloseLaunches::next(int64_t most_tiles) {
  CloseLaunch launch;
  launch.work.open = gradient_.open;
  launch.work.elements = elements_;
  launch.work.scale = gradient_.scale;
  launch.work.first_tile = tile_;
  while (tile_ * kTileElements < elements_ && launch.tiles < most_tiles && add_tile(launch)) {
  }
  return launch;
}

}  // namespace sluice
