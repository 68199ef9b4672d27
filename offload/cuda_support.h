// What device_cuda.cpp and the .cu files share. No CUDA in this header: a stream is the pointer that cudaStream_t is,
// an error the number that cudaError_t is.
#pragma once
#include <cstdint>

#include "core/adam_step.h"
#include "core/dtype.h"
#include "offload/close_kernel.h"
#include "offload/device_kernels.h"

struct CUstream_st;

namespace sluice {

// Throws DeviceError naming the call, the error's name and text, and the size unless it is negative. 0 is success.
struct CudaCall {
  const char* name = "";  // "cudaMemcpyAsync"
  int64_t size = -1;
  const char* unit = "bytes";
};
void check_cuda(int error, const CudaCall& call);

// Start kernels on a stream; nothing for no elements. The bodies are in device_kernels.h and close_kernel.h.
void launch_add(CUstream_st* stream, DType dtype, const kernels::AddWork& work);
void launch_close(CUstream_st* stream, DType dtype, const kernels::CloseWork& work);
// *not_finite: update_kernel.h.
void launch_update(CUstream_st* stream, AdamFormat format, const AdamRun& run, int* not_finite);
// Throws DeviceError where the build has no code for the current GPU.
void check_kernels();

}  // namespace sluice
