// The workspace: the part of the device that compute's temporaries live in, handed out by address. No LibTorch here.
//
// Deterministic: the same sequence of calls gives the same offsets in any span that is large enough, so a high-water
// mark measured in a larger span is exactly what the same work needs. Holes are taken best fit (lowest address among
// equals), the untouched end only when no hole fits. Thread-safe. A call that finds room never allocates (up to
// kMaxPieces).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace sluice {

class Workspace {
 public:
  static constexpr int64_t kAlignmentBytes = 256;

  // `memory` starts at a multiple of kAlignmentBytes and outlives the last block handed out.
  explicit Workspace(std::span<std::byte> memory);
  // Blocks may outlive the object: they are still taken back, by release().
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  // Throws DeviceError naming the bytes asked for, in use and there, and what to do.
  std::byte* take(int64_t bytes);
  // Gives a block back to whichever workspace of this process it came from, from any thread. False: none of them has
  // it.
  static bool release(void* address) noexcept;

  int64_t bytes() const;
  int64_t bytes_in_use() const;
  int64_t high_water_bytes() const;  // end of the highest block handed out since the start, from the span's first byte

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// While it lives, LibTorch's tensors that this thread makes where it computes (libtorch/compute_scope.h) come from
// `workspace`; those of other threads, and this one's before and after, from LibTorch's own allocator for the CPU, and
// on a GPU from none. Scopes nest. Installs the allocator at the first use.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace);
  ~WorkspaceScope();
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace* before_;
};

// For CudaMemory. A block of this thread's scope; throws DeviceError outside of any.
std::byte* take_for_visit(int64_t bytes);
void give_back_of_visit(void* address) noexcept;  // a check fails where it is no workspace's

}  // namespace sluice
