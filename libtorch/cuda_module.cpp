// libsluice_torch_cuda.so, the only part of ours that links LibTorch's CUDA libraries.
//
// Two runs give the same bits: deterministic algorithms (libtorch/process.cpp), cuBLAS with a fixed configuration of
// its workspace (cuda_module_loader.cpp) and sums in fp32, and of the kernels for attention LibTorch's flash attention,
// which has a deterministic backward, or where it does not take the type (fp32) plain products. fp32 is fp32: no TF32
// anywhere.
#include "libtorch/cuda_module.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <map>
#include <mutex>
#include <shared_mutex>

namespace sluice {
namespace {

constexpr c10::DeviceIndex kGpu = 0;

void set_numerics() {
  at::Context& context = at::globalContext();
  context.setFloat32MatmulPrecision("highest");
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setSDPUseFlash(true);
  context.setSDPUseMath(true);
  context.setSDPUseMemEfficient(false);
  context.setSDPUseCuDNN(false);
}

void set_allocator(const CudaMemory& memory) {
  namespace pluggable = torch::cuda::CUDAPluggableAllocator;
  pluggable::changeCurrentAllocator(pluggable::createCustomAllocator(
      [take = memory.take](size_t bytes, int, cudaStream_t) -> void* {
        return bytes == 0 ? nullptr : take(static_cast<int64_t>(bytes));
      },
      [give_back = memory.give_back](void* address, size_t, int, cudaStream_t) {
        if (address != nullptr) give_back(address);
      }));
}

class StreamScope final : public CudaModule::Scope {
 public:
  explicit StreamScope(cudaStream_t stream)
      : stream_(c10::cuda::getStreamFromExternal(stream, kGpu)),
        threads_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~StreamScope() override { c10::AutogradState::get_tls_state().set_multithreading_enabled(threads_); }

 private:
  c10::cuda::CUDAStreamGuard stream_;
  bool threads_;
};

class TorchCuda final : public CudaModule {
 public:
  explicit TorchCuda(const CudaMemory& memory) {
    set_numerics();
    set_allocator(memory);
  }

  std::string why_not() const override {
    return at::globalContext().hasCUDA() ? "" : "LibTorch finds no GPU, or computed in this process before";
  }

  std::unique_ptr<Scope> compute_on(void* stream) override {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    return std::make_unique<StreamScope>(static_cast<cudaStream_t>(stream));
  }

  // What cuBLAS and cuBLASLt keep for the stream: each takes it once, at its first product if not here.
  void take_blas_memory() override {
    at::cuda::getCurrentCUDABlasHandle();
    at::cuda::getCUDABlasLtWorkspace();
  }

  void give_back_blas_memory(void* stream) noexcept override {
    for (auto* kept :
         {&at::cuda::cublas_handle_stream_to_workspace(), &at::cuda::cublaslt_handle_stream_to_workspace()}) {
      const std::unique_lock lock(kept->mutex);
      std::erase_if(kept->map, [&](const auto& entry) { return std::get<1>(entry.first) == stream; });
    }
  }
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::CudaModule* sluice_make_cuda_module(
    const sluice::CudaMemory& memory) {
  return new sluice::TorchCuda(memory);  // never destroyed: tensors may be freed during exit
}
