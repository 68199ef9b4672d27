#include "cpu_adam/update_team.h"

namespace sluice {

std::unique_ptr<UpdateTeam> make_update_team(const Topology& topology, int threads) {
  return make_update_team_std(topology, threads);
}

}  // namespace sluice
