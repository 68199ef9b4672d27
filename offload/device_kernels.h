// The arithmetic of the CUDA device's kernels, a block of threads at a time: nvcc compiles it for the GPU, and a plain
// compiler for tests that run the blocks on the host. It gives the bits of gradient_kernels.h (NaN as a class): fp32
// and fp64 of IEEE without contraction, so .cu files are compiled with -fmad=false.
//
// A Block has number(), and threads(work), which calls work(thread) for each of its threads and returns when all have:
// a barrier. Blocks have kBlockThreads threads, touch no bytes of each other in one launch and may run in any order,
// but for closing's (close_kernel.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/stored.h"
#include "offload/gradient_kernels.h"

#ifdef __CUDACC__
#define SLUICE_KERNEL __device__ __forceinline__
#else
#define SLUICE_KERNEL inline
#endif

namespace sluice::kernels {

constexpr int kBlockThreads = 256;
constexpr int kTileElements = kNormTileElements;  // a block's work
constexpr int kThreadElements = kTileElements / kBlockThreads;

struct ElementRange {
  int64_t first = 0;
  int elements = 0;
};
// A tile, or what is left of it.
SLUICE_KERNEL ElementRange tile_range(int64_t tile, int64_t elements) {
  const int64_t first = tile * kTileElements, rest = elements - first;
  return {first, static_cast<int>(rest < kTileElements ? rest : kTileElements)};
}

// A whole tile's elements, in place of a number: known when it is compiled, so that nothing asks where the tile ends.
using WholeTile = std::integral_constant<int, kTileElements>;

// Calls each(k, i) for a thread's next kCount elements i of a tile from `first`, the k-th of them: neighbours in memory
// go to neighbours among the threads, so that any address is read in whole sectors.
template <int kCount, int kThreads, class Elements, class Each>
SLUICE_KERNEL void for_each_of(int first, Elements elements, const Each& each) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int k = 0; k < kCount; ++k) {
    const int i = first + k * kThreads;
    if (std::is_same_v<Elements, WholeTile> || i < elements) each(k, i);
  }
}

struct AddWork {
  float* open = nullptr;
  const void* gradient = nullptr;
  int64_t elements = 0;
  Contribution which = Contribution::kFirst;
};

// All of a thread's loads are under way before its first store.
template <DType kType, class Block>
SLUICE_KERNEL void add_tile(const Block& block, const AddWork& work) {
  const ElementRange tile = tile_range(block.number(), work.elements);
  const auto* gradient = static_cast<const Stored<kType>*>(work.gradient) + tile.first;
  float* const open = work.open + tile.first;
  block.threads([&](int thread) {
    float sums[kThreadElements] = {};
    const auto each = [&](const auto& call) {
      for_each_of<kThreadElements, kBlockThreads>(thread, tile.elements, call);
    };
    each([&](int k, int i) { sums[k] = widened<kType>(gradient[i]); });
    if (work.which == Contribution::kLater) each([&](int k, int i) { sums[k] = open[i] + sums[k]; });
    each([&](int k, int i) { open[i] = sums[k]; });
  });
}

}  // namespace sluice::kernels
