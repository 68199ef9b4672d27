#include "offload/close_launches.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {

using kernels::CloseWork;
using kernels::kTileElements;

CloseLaunches::CloseLaunches(const Closing& gradient) : gradient_(gradient) {
  constexpr int64_t kLeastElements = 128;
  int64_t before = 0;  // elements of the piece before; 0: there is none
  for (const ClosedPiece& piece : gradient.pieces) {
    if (piece.elements == 0) continue;
    const bool before_is_first = before == elements_;
    SLUICE_CHECK(before_is_first || before >= kLeastElements, "a piece between two others is too short");
    before = piece.elements;
    elements_ += piece.elements;
  }
  int64_t first = 0;
  for (const ClosedPiece& piece : gradient.pieces) {
    check(piece, first);
    first += piece.elements;
  }
}

// What a piece overwrites of the open gradient are its own elements and those before.
void CloseLaunches::check(const ClosedPiece& piece, int64_t first) const {
  const auto open = reinterpret_cast<uintptr_t>(gradient_.open), to = reinterpret_cast<uintptr_t>(piece.to);
  const uintptr_t end = open + static_cast<uintptr_t>(elements_) * 4;
  SLUICE_CHECK(piece.elements == 0 || to >= end || to <= open + static_cast<uintptr_t>(first) * 4,
               "a piece of a closed gradient lies over values that are read after it");
}

CloseWork CloseLaunches::next(int64_t most_tiles) {
  CloseWork work;
  work.open = gradient_.open;
  work.elements = elements_;
  work.scale = gradient_.scale;
  work.first_tile = tile_;
  const int64_t first = tile_ * kTileElements;
  if (first >= elements_) return work;
  const std::span<const ClosedPiece> pieces = gradient_.pieces;
  while (piece_first_ + pieces[piece_].elements <= first) piece_first_ += pieces[piece_++].elements;
  int64_t end =
      std::min(elements_, first + std::min<int64_t>(most_tiles, kernels::CloseProgress::kMostTiles) * kTileElements);
  int64_t at = piece_first_;
  for (size_t piece = piece_; at < end; at += pieces[piece++].elements) {
    if (pieces[piece].elements == 0) continue;
    if (work.target_count == CloseWork::kMostTargets) {
      end = at / kTileElements * kTileElements;
      break;
    }
    work.targets[work.target_count++] = {pieces[piece].to, at};
  }
  work.tiles = (end - first + kTileElements - 1) / kTileElements;
  tile_ += work.tiles;
  return work;
}

}  // namespace sluice
