// A block of threads on the GPU, as device_kernels.h wants it. For .cu files alone.
#pragma once
#include <cstdint>

namespace sluice {

class GpuBlock {
 public:
  __device__ int64_t number() const { return blockIdx.x; }
  template <class Work>
  __device__ void threads(const Work& work) const {
    work(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};

}  // namespace sluice
