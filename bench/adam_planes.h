// Planes of a benchmark, filled as in training, and the tasks that sweep over them on the update team.
#pragma once
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "bench/adam.h"
#include "core/arena.h"
#include "core/topology.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/adam_sums.h"
#include "cpu_adam/update_team.h"

namespace sluice {

// What the options ask for, with gradients of the weights' type.
AdamFormat format_of(const AdamBenchOptions& options);

int threads_of(const AdamBenchOptions& options, const Topology& topology);

// Of which the planes fit into so many bytes.
int64_t most_elements(AdamFormat format, int64_t bytes);

// The elements that one NUMA node's threads sweep over, whose planes lie there: in proportion to those threads, whole
// pages of 2 MiB of every plane but for the last share.
struct NodeShare {
  int64_t first = 0, elements = 0;
  int group = UpdateTeam::kAnyGroup;
  TeamGroup threads;
};
std::vector<NodeShare> node_shares(int64_t elements, std::span<const TeamGroup> groups);

class BenchPlanes {
 public:
  BenchPlanes(AdamFormat format, int64_t elements);  // wherever the kernel puts them
  BenchPlanes(AdamFormat format, const Topology& topology, std::span<const NodeShare> shares);

  int64_t elements() const { return elements_; }
  AdamFormat format() const { return format_; }
  AdamPlanes at(int64_t element) const;
  // Memory to stream over, as floats: the master and the moments, in whose place, where they are halves, the scratch
  // plane stands, which is as long as both.
  std::vector<std::span<float>> floats(int64_t element, int64_t elements) const;
  float* scratch() const { return scratch_; }  // fp32, one for each element
  // Both moments as floats to be read: halves in pairs.
  std::array<std::span<const float>, 2> moments(int64_t element, int64_t elements) const;

 private:
  BenchPlanes(AdamFormat format, int64_t elements, const Arena::Place& place);

  AdamFormat format_;
  int64_t elements_;
  Arena arena_;
  AdamPlanes planes_;
  std::array<std::byte*, 2> moments_ = {};
  float* scratch_ = nullptr;
};

// Ranges of elements, one a task, run by the team in order. Nodes take turns.
struct BenchChunk {
  int64_t first = 0, elements = 0;
  int group = UpdateTeam::kAnyGroup;
};
std::vector<BenchChunk> equal_chunks(std::span<const NodeShare> shares);
// Of sizes as a model has them: from a bias' worth to as many elements as `largest`.
std::vector<BenchChunk> uneven_chunks(std::span<const NodeShare> shares, int64_t largest);

using ChunkPass = std::function<void(int64_t first, int64_t elements)>;
struct SweepTimes {
  double first_ns = 0, all_ns = 0;  // from the start to the end of the first chunk, and of the last
};
SweepTimes sweep(UpdateTeam& team, std::span<const BenchChunk> chunks, const ChunkPass& pass);

AdamKernel kernel_named(const std::string& isa, AdamFormat format);
SummingAdamKernel summing_named(const std::string& isa, AdamFormat format);  // null: kernel_named in tiles

}  // namespace sluice
