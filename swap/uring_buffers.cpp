#include "swap/uring_buffers.h"

#include <algorithm>

#include "core/arena.h"
#include "core/bytes.h"

namespace sluice {
namespace {

int64_t address_of(const void* memory) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory)); }

}  // namespace

UringBuffers::UringBuffers(std::span<const std::span<std::byte>> memory) {
  for (const std::span<std::byte> each : memory) {
    const int64_t first = address_of(each.data()), bytes = std::ssize(each);
    // What lies before the first whole 2 MiB page, the whole ones, and the rest.
    const int64_t head = std::min(round_up(first, kHugePageBytes) - first, bytes);
    const int64_t whole = (bytes - head) / kHugePageBytes * kHugePageBytes;
    add(each.first(static_cast<size_t>(head)));
    add(each.subspan(static_cast<size_t>(head), static_cast<size_t>(whole)));
    add(each.subspan(static_cast<size_t>(head + whole)));
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [](const iovec& a, const iovec& b) { return address_of(a.iov_base) < address_of(b.iov_base); });
}

void UringBuffers::add(std::span<std::byte> memory) {
  while (!memory.empty()) {
    const size_t bytes = std::min(memory.size(), static_cast<size_t>(kMostBytes));
    pieces_.push_back({.iov_base = memory.data(), .iov_len = bytes});
    memory = memory.subspan(bytes);
  }
}

int UringBuffers::piece_of(const std::byte* first, size_t bytes) const {
  const auto begins_behind = [](int64_t address, const iovec& piece) { return address < address_of(piece.iov_base); };
  const auto behind = std::upper_bound(pieces_.begin(), pieces_.end(), address_of(first), begins_behind);
  if (behind == pieces_.begin()) return -1;
  const iovec& piece = *(behind - 1);
  const int64_t end = address_of(piece.iov_base) + static_cast<int64_t>(piece.iov_len);
  if (address_of(first) + static_cast<int64_t>(bytes) > end) return -1;
  return static_cast<int>(behind - pieces_.begin()) - 1;
}

}  // namespace sluice
