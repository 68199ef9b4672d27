// LibTorch's CUDA side, behind a shared module of our own: its libraries are gigabytes that every start would load, and
// none of them is touched unless a GPU is chosen. No LibTorch or CUDA in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sluice {

// What LibTorch's tensors on the GPU take their memory from: the workspace of the visit that this thread runs.
struct CudaMemory {
  std::byte* (*take)(int64_t bytes) = nullptr;          // throws DeviceError; never asked for 0 bytes
  void (*give_back)(void* address) noexcept = nullptr;  // any thread
};

// The module. Computes on the first GPU that the process sees, as device_cuda does.
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  // Empty where LibTorch can use the GPU; else why it cannot.
  virtual std::string why_not() const = 0;

  // While it lives, LibTorch's current stream on this thread is `stream` (a cudaStream_t), and backward passes run on
  // this thread: a thread of autograd's own would be outside of the visit.
  class Scope {
   public:
    virtual ~Scope() = default;
  };
  virtual std::unique_ptr<Scope> compute_on(void* stream) = 0;

  // What cuBLAS needs beside its operands on the current stream and thread, taken now and kept until it is given back.
  virtual void take_blas_memory() = 0;
  virtual void give_back_blas_memory(void* stream) noexcept = 0;
};

// The module's only symbol; makes it once, before LibTorch computes anything in this process.
constexpr const char* kMakeCudaModule = "sluice_make_cuda_module";
using MakeCudaModule = CudaModule* (*)(const CudaMemory& memory);

// Loads it at the first call, which takes seconds; it stays for good. Throws DeviceError that says what is missing: the
// module's file, a library that it needs, LibTorch's part for CUDA. Needs no driver. Thread-safe.
CudaModule& cuda_module();

// Part of loading it: sets the environment's CUBLAS_WORKSPACE_CONFIG, which cuBLAS reads with its first handle, so that
// products give the same bits twice. Throws DeviceError where it is there and says otherwise.
void set_blas_configuration();

}  // namespace sluice
