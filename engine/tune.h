// Which settings are predicted to make a step the shortest: the size of micro-batches, the size of chunks, and how two
// budgets that come out of one memory share it. The samples of a step stay what they are. Pure; any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/plan.h"

namespace sluice {

// A model's visits with micro-batches of one size, and how many of them a step takes.
struct MicroBatching {
  int64_t samples = 1;  // of a micro-batch
  int micro_batches = 1;
  ModelSpec model;
  int64_t workspace_bytes = 0;
  std::vector<int64_t> graph_bytes;  // PlanOptions::graph_bytes
  std::vector<VisitTime> visits;
};

// What may be chosen. The first of each list is the configuration as given.
struct TuneSpace {
  std::vector<MicroBatching> batchings;
  std::vector<int64_t> chunk_elements;  // 0: derived, as PlanOptions has it
  std::vector<int64_t> device_bytes;    // of `total_bytes`; the host has the rest
  int64_t total_bytes = 0;
};

// Indices into the lists of a TuneSpace; all 0: as given.
struct TuneSettings {
  size_t batching = 0, chunk = 0, split = 0;
  auto operator<=>(const TuneSettings&) const = default;
  int changes() const { return (batching != 0) + (chunk != 0) + (split != 0); }
};
struct TuneCandidate {
  TuneSettings settings;
  double step_ms = 0;  // predicted
};

// `base` with these settings; base.speeds has the machine.
PlanOptions options_of(const TuneSpace& space, const TuneSettings& settings, const PlanOptions& base);

struct TuneSearch {
  std::vector<TuneCandidate> candidates;  // that fit: the shortest step first, among equals the fewest changes
  int64_t unfit = 0;                      // settings looked at that the budgets cannot hold
};
// For each size of micro-batches: the best split with the chunks as they are, the best chunks with that split, and both
// once more; where nothing fits on that way, every pair. `progress` is told how many of how many predictions are done,
// from several threads, never from two at once; what it throws passes through.
TuneSearch search_settings(const TuneSpace& space, const PlanOptions& base,
                           const std::function<void(int64_t, int64_t)>& progress);

// At most `count`, and at least 1: as given where that fits, and the best of the others. Those that are predicted to
// take as long as one taken already, within 1 %, with the same micro-batches are passed over: a trial could not tell
// them apart.
std::vector<TuneCandidate> worth_trying(const TuneSearch& search, int count);

// What is worth looking at, the given value first: sizes that divide the samples of a step, up to 8 times smaller or
// larger than the given one; powers of two from 1/64 of the largest partition (1 Mi at the most) until they hold all of
// it (4 Mi at the most); sixteenths, then eighths of a memory, in whole MiB where it is large.
std::vector<int64_t> micro_batch_sizes(int64_t samples_of_step, int64_t given);
std::vector<int64_t> chunk_sizes(int64_t largest_partition_elements, int64_t given);
std::vector<int64_t> device_shares(int64_t total_bytes, int64_t given);

}  // namespace sluice
