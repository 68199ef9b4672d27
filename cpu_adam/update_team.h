// The threads of the update lane: a team pinned to the machine's cores. A task is one chunk's pass, run whole by one
// thread, so results do not depend on the number of threads. Twins: TBB arenas (one a NUMA node), std::thread.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "core/topology.h"

namespace sluice {

class UpdateTeam {
 public:
  virtual ~UpdateTeam() = default;  // waits for the tasks under way
  // Queues a task; starts in the order of calls, several at once. Any one thread at a time. `task` must not throw, and
  // must outlive its run (it is referred to, not copied): no allocation per call in our code.
  virtual void start(void (*task)(void* context, int index), void* context, int index) = 0;
  virtual int threads() const = 0;
  virtual std::string describe() const = 0;
};

// threads <= 0: one a physical core. Pins by `topology`, which must outlive the team.
std::unique_ptr<UpdateTeam> make_update_team(const Topology& topology, int threads);  // TBB where built with it
std::unique_ptr<UpdateTeam> make_update_team_std(const Topology& topology, int threads);

}  // namespace sluice
