// What the twins of the update team share: the bounded queue of tasks and the plan of threads over NUMA nodes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/topology.h"

namespace sluice {

constexpr int kTaskFifoSlots = 1024;

// A ring taken at construction. Not synchronised: the team's mutex guards it.
class TaskFifo {
 public:
  struct Task {
    void (*run)(void* context, int index);
    void* context;
    int index;
  };
  bool empty() const { return pushed_ == popped_; }
  bool full() const { return pushed_ - popped_ == kTaskFifoSlots; }
  // Requires !full() / !empty().
  void push(const Task& task) { slots_[static_cast<size_t>(pushed_++ % kTaskFifoSlots)] = task; }
  Task pop() { return slots_[static_cast<size_t>(popped_++ % kTaskFifoSlots)]; }

 private:
  std::vector<Task> slots_ = std::vector<Task>(kTaskFifoSlots);
  int64_t pushed_ = 0, popped_ = 0;
};

// For each NUMA node the logical CPU of each of its threads (-1: nowhere in particular). Threads are shared out in
// proportion to the nodes' cores, or to their CPUs where there are more threads than cores; a node may get none.
// threads <= 0: one a physical core.
inline std::vector<std::vector<int>> cpus_of_team(const Topology& topology, int threads) {
  if (threads <= 0) threads = std::max(1, topology.core_count());
  std::vector<std::vector<int>> cpus;
  std::vector<int64_t> shares;
  int64_t total = 0;
  for (int node = 0; node < topology.node_count(); ++node) {
    cpus.push_back(topology.cpus_of_node(node));
    const bool siblings = threads > topology.core_count();
    shares.push_back(siblings ? static_cast<int64_t>(cpus.back().size()) : topology.cores_of_node(node));
    total += shares.back();
  }
  if (total == 0) return {std::vector<int>(static_cast<size_t>(threads), -1)};
  int64_t before = 0;
  for (size_t at = 0; at < cpus.size(); ++at) {
    auto& node = cpus[at];
    const int64_t after = before + shares[at];
    const std::vector<int> available = node;
    node.resize(static_cast<size_t>(threads * after / total - threads * before / total));
    for (size_t i = 0; i < node.size(); ++i) node[i] = available[i % available.size()];
    before = after;
  }
  std::erase_if(cpus, [](const std::vector<int>& node) { return node.empty(); });
  return cpus;
}

inline int threads_of(const std::vector<std::vector<int>>& cpus) {
  size_t threads = 0;
  for (const auto& node : cpus) threads += node.size();
  return static_cast<int>(threads);
}

}  // namespace sluice
