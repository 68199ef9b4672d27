#include "offload/byte_ring.h"

#include <ranges>

#include "core/errors.h"

namespace sluice {

int64_t ByteRing::take(int64_t bytes) {
  SLUICE_CHECK(bytes <= bytes_, "a ring is smaller than one of its buffers");
  if (cursor_ + bytes > bytes_) cursor_ = 0;
  const int64_t at = offset_ + cursor_;
  cursor_ += bytes;
  return at;
}

void ByteRing::end_with(std::span<const int64_t> sizes) {
  cursor_ = bytes_;
  for (const int64_t bytes : sizes | std::views::reverse) cursor_ = (cursor_ < bytes ? bytes_ : cursor_) - bytes;
}

}  // namespace sluice
