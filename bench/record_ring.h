// Memory for records of many sizes that come and go in about the same order: each lies behind the one taken before it,
// or at the start again, so that as many are under way as fit.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>

namespace sluice {

class RecordRing {
 public:
  explicit RecordRing(int64_t bytes) : bytes_(bytes) {}
  // The offset of `bytes` contiguous ones. nullopt: not before others are given back.
  std::optional<int64_t> take(int64_t bytes);
  // In any order; the room of what was taken early opens only with it.
  void give_back(int64_t offset);

 private:
  struct Piece {
    int64_t begin = 0, end = 0;
    bool is_free = false;
  };
  int64_t bytes_;
  std::deque<Piece> pieces_;  // the oldest first; it is not free
};

}  // namespace sluice
