// A cursor over a ring of bytes of an arena: buffers are taken one after the other and wrap to the start where the rest
// is too short. There is no release: the program's hazards keep a new user waiting for the old one. Build-time only.
#pragma once
#include <cstdint>
#include <span>

namespace sluice {

class ByteRing {
 public:
  ByteRing(int64_t offset, int64_t bytes) : offset_(offset), bytes_(bytes) {}
  // Offset in the arena of `bytes` contiguous bytes (a check fails where the ring is smaller).
  int64_t take(int64_t bytes);
  // Where take() would be.
  int64_t peek(int64_t bytes) const { return offset_ + (cursor_ + bytes > bytes_ ? 0 : cursor_); }
  void rewind() { cursor_ = 0; }
  // To where buffers of these sizes, taken next in this order, end with the ring: one after them is at its start.
  void end_with(std::span<const int64_t> sizes);

 private:
  int64_t offset_, bytes_;
  int64_t cursor_ = 0;
};

}  // namespace sluice
