#include "core/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/topology.h"

namespace sluice {
namespace {

constexpr int64_t kPageBytes = 4096;

[[noreturn]] void refuse(int64_t bytes, std::string_view why) {
  throw ConfigError(
      fmt::format("cannot take {} bytes ({}) of host memory: {}; {} bytes ({}) are available here; lower "
                  "the budgets or free memory",
                  bytes, format_bytes(bytes), why, available_host_bytes(), format_bytes(available_host_bytes())));
}

// A mapping whose first byte is at a 2 MiB boundary: maps more, and gives the ends back.
std::byte* map_aligned(int64_t bytes) {
  const size_t more = static_cast<size_t>(bytes + kHugePageBytes);
  void* mapped = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) refuse(bytes, "the address space or a limit (ulimit -v) does not allow it");
  const uintptr_t first = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = static_cast<uintptr_t>(round_up(static_cast<int64_t>(first), kHugePageBytes));
  const size_t head = aligned - first;
  const size_t tail = more - head - static_cast<size_t>(bytes);
  if (head > 0) munmap(mapped, head);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + static_cast<uintptr_t>(bytes)), tail);
  return reinterpret_cast<std::byte*>(aligned);
}

// Returns an errno; 0: every page is there.
int touch_part(std::byte* base, int64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(base, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return 0;
  if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) return errno;
#endif
  // An older kernel, or one that does not allow the call: by hand.
  for (int64_t at = 0; at < bytes; at += kPageBytes) *const_cast<volatile std::byte*>(base + at) = std::byte{0};
  return 0;
}

// The kernel clears what is touched, at the pace of one core: several do it side by side. Returns an errno, as above.
int touch(std::byte* base, int64_t bytes) {
  constexpr int64_t kLeastBytes = 128 * kMiB;  // worth a thread
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, bytes / kLeastBytes + 1);
  const int64_t part = round_up(bytes / threads + 1, kHugePageBytes);
  std::atomic<int> error = 0;
  const auto touch_one = [&](std::byte* first, int64_t count) {
    if (const int failed = touch_part(first, count); failed != 0) error = failed;
  };
  std::vector<std::jthread> helpers;
  int64_t left = part;  // for this thread: the first part, and those that no thread could be had for
  try {
    for (; left < bytes; left += part) helpers.emplace_back(touch_one, base + left, std::min(part, bytes - left));
  } catch (const std::system_error&) {
  }
  touch_one(base, std::min(part, bytes));
  if (left < bytes) touch_one(base + left, bytes - left);
  helpers.clear();  // waits for them
  return error;
}

}  // namespace

// Another constructor first: what throws here then unmaps.
Arena::Arena(int64_t bytes, const Place& place) : Arena() {
  SLUICE_CHECK(bytes >= 0, "an arena's size is not negative");
  if (bytes == 0) return;
  if (bytes > available_host_bytes()) refuse(bytes, "it is more than there is");
  const int64_t mapped = round_up(bytes, kPageBytes);
  base_ = map_aligned(mapped);
  mapped_bytes_ = mapped;
  bytes_ = bytes;
  if (place) place({base_, static_cast<size_t>(mapped_bytes_)});
  // Advice only: a kernel without transparent huge pages refuses it and gives 4 KiB pages. The tail must not be rounded
  // up to a huge page, or more than the budget is resident.
  const int64_t whole = mapped_bytes_ / kHugePageBytes * kHugePageBytes;
  if (whole > 0) madvise(base_, static_cast<size_t>(whole), MADV_HUGEPAGE);
  if (whole < mapped_bytes_) madvise(base_ + whole, static_cast<size_t>(mapped_bytes_ - whole), MADV_NOHUGEPAGE);
  if (const int error = touch(base_, mapped_bytes_); error != 0) {
    refuse(bytes, fmt::format("the kernel gives no pages: {}", std::generic_category().message(error)));
  }
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(mapped_bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

}  // namespace sluice
