// A block of threads on the GPU, as device_kernels.h and close_kernel.h want it. For .cu files alone.
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

  __device__ uint32_t next(uint32_t* counter) const {
    return __nv_atomic_fetch_add(counter, 1u, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
  }
  __device__ void tell(uint32_t* word, uint32_t bits) const {
    __nv_atomic_fetch_or(word, bits, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
  }
  __device__ bool told(const uint32_t* word, uint32_t bits) const {
    uint32_t found = 0;
    __nv_atomic_load(word, &found, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
    return (found & bits) == bits;
  }
  template <class Condition>
  __device__ void wait(const Condition& condition) const {
    while (!condition(static_cast<int>(threadIdx.x))) __nanosleep(64);
    __syncthreads();
  }
};

}  // namespace sluice
