// What the twins of the update team share: the bounded queue of tasks and the plan of threads over NUMA nodes
// (team_plan.cpp).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/topology.h"
#include "cpu_adam/update_team.h"

namespace sluice {

constexpr int kTaskFifoSlots = 2048;  // two a thread, as many as a step has in flight, of 1024 threads

// A ring taken at construction. Not synchronised: the team's mutex guards it.
class TaskFifo {
 public:
  using Task = UpdateTeam::Task;
  bool empty() const { return pushed_ == popped_; }
  bool full() const { return pushed_ - popped_ == kTaskFifoSlots; }
  void push(const Task& task) { slot(pushed_++) = task; }  // requires !full()
  // The oldest task that threads of this group may run.
  std::optional<Task> pop(int group) {
    const int64_t at = find(group);
    if (at < 0) return std::nullopt;
    const Task task = slot(at);
    slot(at).run = nullptr;  // taken out of turn: its slot is free once those before it are
    while (!empty() && slot(popped_).run == nullptr) ++popped_;
    return task;
  }
  bool has_task_for(int group) const { return find(group) >= 0; }

 private:
  int64_t find(int group) const {
    for (int64_t at = popped_; at < pushed_; ++at) {
      const Task& task = slots_[static_cast<size_t>(at % kTaskFifoSlots)];
      if (task.run != nullptr && (task.group == group || task.group == UpdateTeam::kAnyGroup)) return at;
    }
    return -1;
  }
  Task& slot(int64_t number) { return slots_[static_cast<size_t>(number % kTaskFifoSlots)]; }

  std::vector<Task> slots_ = std::vector<Task>(kTaskFifoSlots);
  int64_t pushed_ = 0, popped_ = 0;
};

// One group of a team: threads on one NUMA node, and the logical CPU of each (-1: nowhere in particular).
struct TeamCpus {
  int node = 0;  // of the topology
  std::vector<int> cpus;
  bool operator==(const TeamCpus&) const = default;
};

// Threads are shared out in proportion to the nodes' cores, or to their CPUs where there are more threads than cores; a
// node that gets none has no group. threads <= 0: one a physical core.
std::vector<TeamCpus> cpus_of_team(const Topology& topology, int threads);
int threads_of(const std::vector<TeamCpus>& groups);

}  // namespace sluice
