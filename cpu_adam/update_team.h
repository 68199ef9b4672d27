// The threads of the update lane: a team pinned to the machine's cores, a group on each NUMA node. A task is one
// chunk's pass, run whole by one thread, so results do not depend on the number of threads. Twins: TBB arenas (one a
// NUMA node), std::thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/topology.h"

namespace sluice {

class UpdateTeam {
 public:
  static constexpr int kAnyGroup = -1;
  struct Task {
    void (*run)(void* context, int index) = nullptr;  // must not throw
    void* context = nullptr;                          // outlives the run
    int index = 0;
    int group = kAnyGroup;  // of whose threads one runs it: where its memory lies
  };

  virtual ~UpdateTeam() = default;  // waits for the tasks under way
  // Queues a task: those that a group may run start in the order of calls, several at once. Any one thread at a time; a
  // full queue makes it wait. No allocation per call in our code.
  virtual void start(const Task& task) = 0;
  virtual int threads() const = 0;
  virtual std::string describe() const = 0;
};

// A team's groups, in the order of their numbers.
struct TeamGroup {
  int node = 0;  // of the topology
  int threads = 0;
};
std::vector<TeamGroup> team_groups(const Topology& topology, int threads);

// threads <= 0: one a physical core. Pins by `topology`, which must outlive the team.
std::unique_ptr<UpdateTeam> make_update_team(const Topology& topology, int threads);  // TBB where built with it
std::unique_ptr<UpdateTeam> make_update_team_std(const Topology& topology, int threads);

}  // namespace sluice
