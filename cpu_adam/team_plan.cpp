#include <algorithm>

#include "cpu_adam/task_fifo.h"

namespace sluice {

std::vector<TeamCpus> cpus_of_team(const Topology& topology, int threads) {
  if (threads <= 0) threads = std::max(1, topology.core_count());
  const bool siblings = threads > topology.core_count();
  const auto share_of = [&](int node) {
    return siblings ? static_cast<int64_t>(topology.cpus_of_node(node).size()) : topology.cores_of_node(node);
  };
  int64_t total = 0;
  for (int node = 0; node < topology.node_count(); ++node) total += share_of(node);
  if (total == 0) return {{.node = 0, .cpus = std::vector<int>(static_cast<size_t>(threads), -1)}};
  std::vector<TeamCpus> groups;
  int64_t before = 0;
  for (int node = 0; node < topology.node_count(); ++node) {
    const std::vector<int> available = topology.cpus_of_node(node);
    const int64_t after = before + share_of(node);
    std::vector<int> cpus(static_cast<size_t>(threads * after / total - threads * before / total));
    for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = available[i % available.size()];
    if (!cpus.empty()) groups.push_back({.node = node, .cpus = std::move(cpus)});
    before = after;
  }
  return groups;
}

int threads_of(const std::vector<TeamCpus>& groups) {
  size_t threads = 0;
  for (const TeamCpus& group : groups) threads += group.cpus.size();
  return static_cast<int>(threads);
}

std::vector<TeamGroup> team_groups(const Topology& topology, int threads) {
  std::vector<TeamGroup> groups;
  for (const TeamCpus& group : cpus_of_team(topology, threads))
    groups.push_back({.node = group.node, .threads = static_cast<int>(group.cpus.size())});
  return groups;
}

}  // namespace sluice
