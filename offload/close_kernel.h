// Closing's kernel, a block of threads a part of some tiles (device_kernels.h). A closed gradient may overwrite the
// start of the fp32 range that it comes from, and one launch closes all of it: a block reads its part, tells so, and
// writes once the parts that its output lies over are told to be read.
//
// No launch can hang. A block takes its part when it starts, so whoever has a lower part has started before it, and
// runs or has ended; its output lies over its own part and lower ones alone (CloseLaunches checks it); and the thread
// that tells waits for nobody. CUDA lets threads of blocks that have started go on, whatever others do.
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

// A block's work: what it does once, and each of its waits, is for two tiles. (More gained nothing: its shared memory
// leaves fewer blocks room.)
constexpr int kPartTiles = 2;
constexpr int kPartElements = kPartTiles * kTileElements;

// How far the blocks of a launch are, in the device's memory. Zero when it starts.
struct CloseProgress {
  static constexpr int kWords = 1023;
  static constexpr int kMostTiles = 32 * kWords * kPartTiles;
  uint32_t started = 0;        // blocks
  uint32_t read[kWords] = {};  // a bit for each part of the launch
};
// A device has two of them: launches take turns.
constexpr int64_t kOwnDeviceBytes = 2 * sizeof(CloseProgress);
static_assert(kOwnDeviceBytes % 4096 == 0);

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
  int64_t first_tile = 0, tiles = 0;       // the launch's
  double* tile_sums = nullptr;             // the launch's, from its first tile; null: none are wanted
  CloseProgress* progress = nullptr;       // the launch's
  CloseProgress* next_progress = nullptr;  // of the launch after it, which this one clears
  CloseTarget targets[kMostTargets];
  int target_count = 0;
};

template <DType kType>
struct CloseShared {  // in a block's own memory
  alignas(16) Stored<kType> rounded[kPartElements];
  double sums[kPartTiles * kNormLanes];
  uint32_t number;

  static_assert(kPartTiles * kNormLanes + CloseWork::kMostTargets < kBlockThreads, "threads of a block");
};

// The block's part, counted from the launch's first, in `number`, which all of its threads see.
template <class Block>
SLUICE_KERNEL void take_part(const Block& block, const CloseWork& work, uint32_t& number) {
  block.threads([&](int thread) {
    if (thread == 0) number = block.next(&work.progress->started);
  });
  if (number > 0) return;
  block.threads([&](int thread) {
    for (int i = thread; i < CloseProgress::kWords; i += kBlockThreads) work.next_progress->read[i] = 0;
    if (thread == 0) work.next_progress->started = 0;
  });
}

// Of a launch: its blocks.
inline int64_t parts_of(const CloseWork& work) { return (work.tiles + kPartTiles - 1) / kPartTiles; }

// A part, or what is left of it.
SLUICE_KERNEL ElementRange part_range(const CloseWork& work, uint32_t number) {
  const int64_t first = work.first_tile * kTileElements + int64_t{number} * kPartElements;
  const int64_t end = std::min(work.elements, (work.first_tile + work.tiles) * kTileElements);
  return {first, static_cast<int>(std::min<int64_t>(end - first, kPartElements))};
}

template <DType kType>
SLUICE_KERNEL void read_part(const CloseWork& work, const ElementRange& part, int thread, Stored<kType>* to) {
  const float* const open = work.open + part.first;
  for (int first = thread; first < part.elements; first += kTileElements) {
    float values[kThreadElements] = {};
    const auto each = [&](const auto& call) {
      for_each_of<kThreadElements, kBlockThreads>(first, part.elements, call);
    };
    each([&](int k, int i) { values[k] = open[i]; });
    each([&](int k, int i) { to[i] = rounded<kType>(values[k] * work.scale); });
  }
}

// Whether the lower parts of the launch that a part's share of one target lies over are read. Those of launches before
// are.
template <DType kType, class Block>
SLUICE_KERNEL bool may_write(const Block& block, const CloseWork& work, uint32_t number, int index) {
  constexpr int64_t kPartBytes = int64_t{kPartElements} * static_cast<int64_t>(sizeof(float));
  const ElementRange part = part_range(work, number);
  const CloseTarget& target = work.targets[index];
  const int64_t next = index + 1 < work.target_count ? work.targets[index + 1].first : work.elements;
  const int64_t first = std::max(part.first, target.first), end = std::min(part.first + part.elements, next);
  const auto* const launch = work.open + work.first_tile * kTileElements;
  const auto to = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target.to) - reinterpret_cast<uintptr_t>(launch));
  const int64_t from_byte = to + (first - target.first) * static_cast<int64_t>(sizeof(Stored<kType>));
  const int64_t end_byte = to + (end - target.first) * static_cast<int64_t>(sizeof(Stored<kType>));
  if (first >= end || end_byte <= 0) return true;
  const int64_t last = std::min(int64_t{number} - 1, (end_byte - 1) / kPartBytes);
  for (int64_t lower = std::max<int64_t>(0, from_byte / kPartBytes); lower <= last; ++lower) {
    const auto bit = static_cast<uint32_t>(lower);
    if (!block.told(&work.progress->read[bit / 32], 1u << bit % 32)) return false;
  }
  return true;
}

// Elements of a part to where they go. As a rule all go to one place that takes 16 bytes at a time.
template <DType kType>
SLUICE_KERNEL void store_part(const CloseWork& work, const ElementRange& part, int thread,
                              const Stored<kType>* values) {
  struct alignas(16) [[gnu::may_alias]] Words {
    uint32_t words[4];
  };
  constexpr int kInWords = static_cast<int>(sizeof(Words) / sizeof(Stored<kType>));
  int target = 0;
  const auto leave_targets_before = [&](int64_t element) {
    while (target + 1 < work.target_count && work.targets[target + 1].first <= element) ++target;
  };
  const auto place_of = [&](int64_t element) {
    return static_cast<Stored<kType>*>(work.targets[target].to) + (element - work.targets[target].first);
  };
  leave_targets_before(part.first);
  auto* const to = place_of(part.first);
  const bool whole = target + 1 == work.target_count || work.targets[target + 1].first >= part.first + part.elements;
  int stored = 0;
  if (whole && reinterpret_cast<uintptr_t>(to) % sizeof(Words) == 0) {
    stored = part.elements / kInWords * kInWords;
    for (int i = thread * kInWords; i < stored; i += kBlockThreads * kInWords) {
      *reinterpret_cast<Words*>(to + i) = *reinterpret_cast<const Words*>(values + i);
    }
  }
  for (int i = stored + thread; i < part.elements; i += kBlockThreads) {
    leave_targets_before(part.first + i);
    *place_of(part.first + i) = values[i];
  }
}

// Of a tile's elements. A product of two fp32 is exact in fp64: fused or not, the sum has the same bits.
template <DType kType>
SLUICE_KERNEL double lane_sum(const Stored<kType>* values, int elements, int lane) {
  constexpr int kAtOnce = 16;
  double sum = 0;
  for (int first = lane; first < elements; first += kAtOnce * kNormLanes) {
    float some[kAtOnce] = {};
    for_each_of<kAtOnce, kNormLanes>(first, elements, [&](int k, int i) { some[k] = widened<kType>(values[i]); });
    for (int k = 0; k < kAtOnce; ++k) sum = std::fma(double{some[k]}, double{some[k]}, sum);  // of nothing: adds 0
  }
  return sum;
}

template <DType kType, class Block>
SLUICE_KERNEL void close_part(const Block& block, const CloseWork& work, CloseShared<kType>& shared) {
  take_part(block, work, shared.number);
  const uint32_t& number = shared.number;
  const auto part = [&] { return part_range(work, number); };  // no registers in between
  block.threads([&](int thread) { read_part<kType>(work, part(), thread, shared.rounded); });
  // Beside each other: some threads sum, one tells, and for each target one waits.
  const int summing = work.tile_sums == nullptr ? 0 : kPartTiles * kNormLanes;
  block.wait([&](int thread) {
    if (thread < summing) {
      const ElementRange tile = tile_range(thread / kNormLanes, part().elements);
      shared.sums[thread] = lane_sum<kType>(shared.rounded + tile.first, tile.elements, thread % kNormLanes);
      return true;
    }
    if (thread == kBlockThreads - 1) {
      block.tell(&work.progress->read[number / 32], 1u << number % 32);
      return true;
    }
    const int target = thread - summing;
    return target >= work.target_count || may_write<kType>(block, work, number, target);
  });
  block.threads([&](int thread) { store_part<kType>(work, part(), thread, shared.rounded); });
  if (work.tile_sums == nullptr) return;
  for (int step = kNormLanes / 2; step >= 1; step /= 2) {
    block.threads([&](int thread) {
      if (thread < summing && thread % kNormLanes < step) shared.sums[thread] += shared.sums[thread + step];
    });
  }
  block.threads([&](int thread) {
    if (thread < summing && thread % kNormLanes == 0 && thread / kNormLanes * kTileElements < part().elements)
      work.tile_sums[number * kPartTiles + static_cast<uint32_t>(thread / kNormLanes)] = shared.sums[thread];
  });
}

}  // namespace sluice::kernels
