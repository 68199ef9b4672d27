// Closing's kernel, a block of threads a tile (device_kernels.h). A closed gradient may overwrite the start of the fp32
// range that it comes from, and one launch closes all of it: a block reads its tile, tells so, and writes once the
// tiles that its output lies over are told to be read.
//
// No launch can hang. A block takes its tile when it starts, so whoever has a lower tile has started before it, and
// runs or has ended; its output lies over its own tile and lower ones alone (CloseLaunches checks it); and every block
// tells before it waits. CUDA lets blocks that have started go on, whatever others do.
//
// Beside threads() closing wants of a Block:
//   next(counter)     adds one; what it was before. For one thread
//   tell(word, bits)  sets them, after all that the block's threads did before the last barrier. For one thread
//   told(word, bits)  whether they are set; if so what the tellers did before is done
//   wait(condition)   a barrier; returns when condition(thread) has held for every thread
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "offload/device_kernels.h"

namespace sluice::kernels {

constexpr int kNormLanes = 32;
constexpr int64_t kTileBytes = int64_t{kTileElements} * sizeof(float);

// How far the blocks of a launch are, in the device's memory. Zero when it starts.
struct CloseProgress {
  static constexpr int kWords = 2047;
  static constexpr int kMostTiles = 32 * kWords;
  uint32_t started = 0;        // blocks
  uint32_t read[kWords] = {};  // a bit for each tile of the launch
};
// A device has two of them: launches take turns.
constexpr int64_t kOwnDeviceBytes = 2 * sizeof(CloseProgress);

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
  int64_t first_tile = 0;                  // the launch's
  double* tile_sums = nullptr;             // the launch's, from its first tile; null: none are wanted
  CloseProgress* progress = nullptr;       // the launch's
  CloseProgress* next_progress = nullptr;  // of the launch after it, which this one clears
  CloseTarget targets[kMostTargets];
  int target_count = 0;
};
static_assert(CloseWork::kMostTargets <= kBlockThreads);

template <DType kType>
struct CloseShared {  // in a block's own memory
  Stored<kType> rounded[kTileElements];
  double sums[kNormLanes];
  uint32_t number;
};

// The block's tile, counted from the launch's first, in `number`, which all of its threads see.
template <class Block>
SLUICE_KERNEL void take_tile(const Block& block, const CloseWork& work, uint32_t& number) {
  block.threads([&](int thread) {
    if (thread == 0) number = block.next(&work.progress->started);
  });
  if (number > 0) return;
  block.threads([&](int thread) {
    for (int i = thread; i < CloseProgress::kWords; i += kBlockThreads) work.next_progress->read[i] = 0;
    if (thread == 0) work.next_progress->started = 0;
  });
}

template <DType kType, class Block>
SLUICE_KERNEL void read_tile(const Block& block, const CloseWork& work, const TileRange& tile, Stored<kType>* to) {
  const float* const open = work.open + tile.first;
  block.threads([&](int thread) {
    float values[kThreadElements] = {};
    for_each_element(thread, tile.elements, [&](int k, int i) { values[k] = open[i]; });
    for_each_element(thread, tile.elements, [&](int k, int i) { to[i] = rounded<kType>(values[k] * work.scale); });
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

// Whether the lower tiles of the launch that a tile's part of one target lies over are read. Those of launches before
// are.
template <DType kType, class Block>
SLUICE_KERNEL bool may_write(const Block& block, const CloseWork& work, const TileRange& tile, int number) {
  const CloseTarget& target = work.targets[number];
  const int64_t next = number + 1 < work.target_count ? work.targets[number + 1].first : work.elements;
  const int64_t first = std::max(tile.first, target.first), end = std::min(tile.first + tile.elements, next);
  const auto to = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target.to) - reinterpret_cast<uintptr_t>(work.open));
  const int64_t from_byte = to + (first - target.first) * static_cast<int64_t>(sizeof(Stored<kType>));
  const int64_t end_byte = to + (end - target.first) * static_cast<int64_t>(sizeof(Stored<kType>));
  if (first >= end || end_byte <= 0) return true;
  const int64_t last = std::min(tile.first / kTileElements - 1, (end_byte - 1) / kTileBytes);
  for (int64_t t = std::max(work.first_tile, from_byte / kTileBytes); t <= last; ++t) {
    const auto bit = static_cast<uint32_t>(t - work.first_tile);
    if (!block.told(&work.progress->read[bit / 32], 1u << bit % 32)) return false;
  }
  return true;
}

template <DType kType>
SLUICE_KERNEL void store_closed(const CloseWork& work, const TileRange& tile, int thread, const Stored<kType>* values) {
  int target = 0;  // elements of a thread ascend
  for_each_element(thread, tile.elements, [&](int, int i) {
    const int64_t element = tile.first + i;
    while (target + 1 < work.target_count && work.targets[target + 1].first <= element) ++target;
    static_cast<Stored<kType>*>(work.targets[target].to)[element - work.targets[target].first] = values[i];
  });
}

template <DType kType, class Block>
SLUICE_KERNEL void close_tile(const Block& block, const CloseWork& work, CloseShared<kType>& shared) {
  take_tile(block, work, shared.number);
  const uint32_t& number = shared.number;
  const auto tile = [&] { return tile_range(work.first_tile + number, work.elements); };  // no registers in between
  read_tile<kType>(block, work, tile(), shared.rounded);
  block.threads([&](int thread) {
    if (thread == kNormLanes) block.tell(&work.progress->read[number / 32], 1u << number % 32);  // beside the sums
    if (work.tile_sums != nullptr && thread < kNormLanes)
      shared.sums[thread] = lane_sum<kType>(shared.rounded, tile().elements, thread);
  });
  block.wait([&](int thread) { return thread >= work.target_count || may_write<kType>(block, work, tile(), thread); });
  block.threads([&](int thread) { store_closed<kType>(work, tile(), thread, shared.rounded); });
  if (work.tile_sums == nullptr) return;
  for (int step = kNormLanes / 2; step >= 1; step /= 2) {
    block.threads([&](int thread) {
      if (thread < step) shared.sums[thread] += shared.sums[thread + step];
    });
  }
  block.threads([&](int thread) {
    if (thread == 0) work.tile_sums[number] = shared.sums[0];
  });
}

}  // namespace sluice::kernels
