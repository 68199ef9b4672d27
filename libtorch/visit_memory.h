// What visits compute in: a workspace, and the stream whose GPU it lies on. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <span>

#include "libtorch/compute_scope.h"
#include "libtorch/workspace.h"

namespace sluice {

// On a GPU the start of the memory is cuBLAS's own for as long as this lives, so that nothing of LibTorch's lies
// outside of what is planned: what is measured with one needs as much in another. One thread computes with it.
class VisitMemory {
 public:
  // `stream`: as ComputeScope's. Throws DeviceError where the memory is too small even for cuBLAS.
  VisitMemory(std::span<std::byte> memory, void* stream);
  ~VisitMemory();  // before the memory goes
  VisitMemory(const VisitMemory&) = delete;
  VisitMemory& operator=(const VisitMemory&) = delete;

  int64_t high_water_bytes() const { return workspace_.high_water_bytes(); }

 private:
  friend class VisitScope;
  Workspace workspace_;
  void* stream_;
};

// While it lives, this thread computes in `memory`.
class VisitScope {
 public:
  explicit VisitScope(VisitMemory& memory) : compute_(memory.stream_), workspace_(memory.workspace_) {}

 private:
  ComputeScope compute_;
  WorkspaceScope workspace_;
};

}  // namespace sluice
