// The gradient's kernels on the GPU: device_kernels.h, one block a tile, and close_kernel.h, one block a part.
#include <cuda_runtime.h>

#include "offload/cuda_support.h"
#include "offload/gpu_block.h"

namespace sluice {
namespace {

using namespace kernels;

template <DType kType>
__global__ void __launch_bounds__(kBlockThreads) add_kernel(const __grid_constant__ AddWork work) {
  add_tile<kType>(GpuBlock(), work);
}

template <DType kType>
__global__ void __launch_bounds__(kBlockThreads) close_kernel(const __grid_constant__ CloseWork work) {
  __shared__ CloseShared<kType> shared;
  close_part<kType>(GpuBlock(), work, shared);
}

}  // namespace

void launch_add(CUstream_st* stream, DType dtype, const AddWork& work) {
  const auto blocks = static_cast<unsigned>((work.elements + kTileElements - 1) / kTileElements);
  if (blocks == 0) return;
  if (dtype == DType::kBf16) add_kernel<DType::kBf16><<<blocks, kBlockThreads, 0, stream>>>(work);
  if (dtype == DType::kFp16) add_kernel<DType::kFp16><<<blocks, kBlockThreads, 0, stream>>>(work);
  if (dtype == DType::kFp32) add_kernel<DType::kFp32><<<blocks, kBlockThreads, 0, stream>>>(work);
  check_cuda(cudaGetLastError(), {"launch of add_gradient", work.elements, "elements"});
}

void launch_close(CUstream_st* stream, DType dtype, const CloseWork& work) {
  const auto blocks = static_cast<unsigned>(parts_of(work));
  if (blocks == 0) return;
  if (dtype == DType::kBf16) close_kernel<DType::kBf16><<<blocks, kBlockThreads, 0, stream>>>(work);
  if (dtype == DType::kFp16) close_kernel<DType::kFp16><<<blocks, kBlockThreads, 0, stream>>>(work);
  if (dtype == DType::kFp32) close_kernel<DType::kFp32><<<blocks, kBlockThreads, 0, stream>>>(work);
  check_cuda(cudaGetLastError(), {"launch of close_gradient", work.tiles, "tiles"});
}

void check_kernels() {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, close_kernel<DType::kBf16>),
             {"cudaFuncGetAttributes (this build has code for compute capability 8.0 and later)"});
}

}  // namespace sluice
