// The optimizer's kernel on the GPU: update_kernel.h, one block a tile.
#include <cuda_runtime.h>

#include "offload/cuda_support.h"
#include "offload/gpu_block.h"
#include "offload/update_kernel.h"

namespace sluice {
namespace {

using namespace kernels;

template <Precision kPrecision, DType kGradient, DType kMoments>
__global__ void __launch_bounds__(kBlockThreads)
    update_kernel(const __grid_constant__ AdamRun run, int* __restrict__ not_finite) {
  update_tile<kPrecision, kGradient, kMoments>(GpuBlock(), run, not_finite);
}

}  // namespace

void launch_update(CUstream_st* stream, AdamFormat format, const AdamRun& run, int* not_finite) {
  const auto blocks = static_cast<unsigned>((run.elements + kTileElements - 1) / kTileElements);
  if (blocks == 0) return;
  adam::with_format(format, [&]<Precision kPrecision, DType kGradient, DType kMoments>() {
    update_kernel<kPrecision, kGradient, kMoments><<<blocks, kBlockThreads, 0, stream>>>(run, not_finite);
  });
  check_cuda(cudaGetLastError(), {"launch of update", run.elements, "elements"});
}

}  // namespace sluice
