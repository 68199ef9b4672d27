// Memory planned and taken at start-up: one anonymous mapping an arena, 2 MiB pages where the kernel gives them, every
// page touched once by the constructor. Offsets into it come from the plan.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace sluice {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Move-only owner of a mapping. The mapping starts at a 2 MiB boundary. Exactly round_up(bytes, 4096) bytes are
// resident: a last partial 2 MiB page is touched in 4 KiB pages. Reading and writing is the callers' affair; the object
// itself is not synchronised.
class Arena {
 public:
  Arena() = default;
  // `place` sees the mapping before any page is touched: the time to say where pages shall lie (Topology::bind_memory);
  // without it they lie wherever the kernel puts them. Throws ConfigError (what was asked, what is there) if the memory
  // cannot be had.
  using Place = std::function<void(std::span<std::byte>)>;
  explicit Arena(int64_t bytes, const Place& place = {});
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* at(int64_t offset) const { return base_ + offset; }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {base_, static_cast<size_t>(bytes_)}; }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;
};

}  // namespace sluice
