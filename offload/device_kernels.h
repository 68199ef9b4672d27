// The arithmetic of the CUDA device's kernels, a block of threads at a time: nvcc compiles it for the GPU, and a plain
// compiler for tests that run the blocks on the host. It gives the bits of gradient_kernels.h (NaN as a class): fp32
// and fp64 of IEEE without contraction, so .cu files are compiled with -fmad=false.
//
// A Block has number(), and threads(work), which calls work(thread) for each of its kBlockThreads threads and returns
// when all have: a barrier. Blocks of one launch touch no bytes of each other and may run in any order.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/half.h"
#include "offload/gradient_kernels.h"

#ifdef __CUDACC__
#define SLUICE_KERNEL __device__ __forceinline__
#else
#define SLUICE_KERNEL inline
#endif

namespace sluice::kernels {

constexpr int kBlockThreads = 256;
constexpr int kTileElements = 4096;  // a block's work, and the norm's tile
constexpr int kThreadElements = kTileElements / kBlockThreads;
constexpr int kNormLanes = 32;

// What lies in memory as kType.
template <DType kType>
struct StoredAs {
  using Type = uint16_t;
};
template <>
struct StoredAs<DType::kFp32> {
  using Type = float;
};
template <DType kType>
using Stored = typename StoredAs<kType>::Type;

template <DType kType>
SLUICE_KERNEL float widened(Stored<kType> value) {
  if constexpr (kType == DType::kBf16) return float_of_bf16(value);
  if constexpr (kType == DType::kFp16) return float_of_fp16(value);
  if constexpr (kType == DType::kFp32) return value;
}
template <DType kType>
SLUICE_KERNEL Stored<kType> rounded(float value) {
  if constexpr (kType == DType::kBf16) return bf16_of_float(value);
  if constexpr (kType == DType::kFp16) return fp16_of_float(value);
  if constexpr (kType == DType::kFp32) return value;
}

// The elements of a block: a tile, or what is left of it.
struct TileRange {
  int64_t first = 0;
  int elements = 0;
};
SLUICE_KERNEL TileRange tile_range(int64_t tile, int64_t elements) {
  const int64_t first = tile * kTileElements, rest = elements - first;
  return {first, static_cast<int>(rest < kTileElements ? rest : kTileElements)};
}

// Calls each(k, i) for a thread's elements i of a tile, the k-th of them: neighbours in memory go to neighbours among
// the threads, so that any address is read in whole sectors.
template <class Each>
SLUICE_KERNEL void for_each_element(int thread, int elements, const Each& each) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int k = 0; k < kThreadElements; ++k) {
    const int i = thread + k * kBlockThreads;
    if (i < elements) each(k, i);
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
  const TileRange tile = tile_range(block.number(), work.elements);
  const auto* gradient = static_cast<const Stored<kType>*>(work.gradient) + tile.first;
  float* const open = work.open + tile.first;
  block.threads([&](int thread) {
    float sums[kThreadElements] = {};
    for_each_element(thread, tile.elements, [&](int k, int i) { sums[k] = widened<kType>(gradient[i]); });
    if (work.which == Contribution::kLater) {
      for_each_element(thread, tile.elements, [&](int k, int i) { sums[k] = open[i] + sums[k]; });
    }
    for_each_element(thread, tile.elements, [&](int k, int i) { open[i] = sums[k]; });
  });
}

// Where closed elements go, from the parameter's element `first` up to the next piece's.
struct CloseTarget {
  void* to = nullptr;
  int64_t first = 0;
};
struct CloseWork {
  static constexpr int kMostTargets = 64;
  const float* open = nullptr;  // of the whole parameter, as are `elements` and all element numbers here
  int64_t elements = 0;
  float scale = 1;
  int64_t first_tile = 0;       // the launch's
  double* tile_sums = nullptr;  // the launch's, from its first tile; null: none are wanted
  CloseTarget targets[kMostTargets];
  int target_count = 0;
};

template <DType kType>
struct CloseShared {  // in a block's own memory
  Stored<kType> rounded[kTileElements];
  double sums[kNormLanes];
};

template <DType kType>
SLUICE_KERNEL void store_closed(const CloseWork& work, const TileRange& tile, int thread, const Stored<kType>* values) {
  int target = 0;  // elements of a thread ascend
  for_each_element(thread, tile.elements, [&](int, int i) {
    const int64_t element = tile.first + i;
    while (target + 1 < work.target_count && work.targets[target + 1].first <= element) ++target;
    static_cast<Stored<kType>*>(work.targets[target].to)[element - work.targets[target].first] = values[i];
  });
}

// A product of two fp32 is exact in fp64: fused or not, the sum has the same bits.
template <DType kType>
SLUICE_KERNEL double lane_sum(const Stored<kType>* values, int elements, int lane) {
  double sum = 0;
  for (int i = lane; i < elements; i += kNormLanes) {
    const double g = widened<kType>(values[i]);
    sum = std::fma(g, g, sum);
  }
  return sum;
}

// A tile is read whole before any of it is written: the output may lie in the tile's own memory.
template <DType kType, class Block>
SLUICE_KERNEL void close_tile(const Block& block, const CloseWork& work, CloseShared<kType>& shared) {
  const TileRange tile = tile_range(work.first_tile + block.number(), work.elements);
  const float* const open = work.open + tile.first;
  block.threads([&](int thread) {
    float values[kThreadElements] = {};
    for_each_element(thread, tile.elements, [&](int k, int i) { values[k] = open[i]; });
    for_each_element(thread, tile.elements,
                     [&](int k, int i) { shared.rounded[i] = rounded<kType>(values[k] * work.scale); });
  });
  block.threads([&](int thread) {
    store_closed<kType>(work, tile, thread, shared.rounded);
    if (work.tile_sums != nullptr && thread < kNormLanes)
      shared.sums[thread] = lane_sum<kType>(shared.rounded, tile.elements, thread);
  });
  if (work.tile_sums == nullptr) return;
  for (int step = kNormLanes / 2; step >= 1; step /= 2) {
    block.threads([&](int thread) {
      if (thread < step) shared.sums[thread] += shared.sums[thread + step];
    });
  }
  block.threads([&](int thread) {
    if (thread == 0) work.tile_sums[block.number()] = shared.sums[0];
  });
}

}  // namespace sluice::kernels
