#include "bench/record_ring.h"

#include <algorithm>

#include "core/errors.h"

namespace sluice {

std::optional<int64_t> RecordRing::take(int64_t bytes) {
  SLUICE_CHECK(bytes > 0 && bytes <= bytes_, "a record that the ring has no room for");
  int64_t begin = 0;
  if (!pieces_.empty()) {
    const Piece &oldest = pieces_.front(), &newest = pieces_.back();
    begin = newest.end;
    const bool is_split = newest.begin < oldest.begin;  // the newest begin at the start again
    if (!is_split && begin + bytes > bytes_) begin = 0;
    const int64_t end = is_split || begin == 0 ? oldest.begin : bytes_;
    if (begin + bytes > end) return std::nullopt;
  }
  pieces_.push_back({.begin = begin, .end = begin + bytes});
  return begin;
}

void RecordRing::give_back(int64_t offset) {
  const auto piece = std::ranges::find(pieces_, offset, &Piece::begin);
  SLUICE_CHECK(piece != pieces_.end() && !piece->is_free, "no record of the ring begins there");
  piece->is_free = true;
  while (!pieces_.empty() && pieces_.front().is_free) pieces_.pop_front();
}

}  // namespace sluice
