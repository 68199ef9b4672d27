// Memory in the pieces in which io_uring gets it as registered buffers. Internal to swap.
//
// A piece has whole 2 MiB pages alone, or none. Where all pages of a buffer are of one size the kernel takes each of
// them as one segment, else every 4 KiB of the whole buffer (Linux, io_uring/rsrc.c, io_check_coalesce_buffer): the
// 4 KiB pages at the end of an arena would cost each of its requests hundreds of segments in place of one.
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Immutable; the memory must outlive it.
class UringBuffers {
 public:
  // Of a piece: pages of another size somewhere in it (memory is fragmented) cost its requests alone, and a request
  // that lies in two pieces uses none.
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  UringBuffers() = default;
  explicit UringBuffers(std::span<const std::span<std::byte>> memory);

  // In the order of their numbers, and of their addresses.
  std::span<const iovec> pieces() const { return pieces_; }
  // The piece that holds all of it; -1: none does.
  int piece_of(const std::byte* first, size_t bytes) const;

 private:
  void add(std::span<std::byte> memory);

  std::vector<iovec> pieces_;
};

}  // namespace sluice
