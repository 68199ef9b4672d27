// Where LibTorch computes on a thread: on the CPU, or on a stream of the GPU. No LibTorch in this header.
#pragma once
#include <memory>

#include "libtorch/cuda_module.h"

namespace sluice {

// While it lives, planned memory is seen as tensors of `stream`'s GPU (Device::compute_stream()) by this thread, and
// what LibTorch does for it is in that stream's order; null: of the CPU. Scopes nest. What LibTorch's kernels leave in
// this thread's vector registers ends with a scope (core/vector_registers.h).
class ComputeScope {
 public:
  explicit ComputeScope(void* stream);
  ~ComputeScope();
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  void* before_;
  std::unique_ptr<CudaModule::Scope> scope_;
};

void* current_compute_stream();  // of this thread; null: the CPU, as everywhere outside of a scope

}  // namespace sluice
