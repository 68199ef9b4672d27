#include "core/topology.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/errors.h"

namespace sluice {

std::optional<ThreadCpus> Topology::cpus_of_this_thread() const noexcept {
  cpu_set_t set;
  static_assert(sizeof set == sizeof(ThreadCpus));
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::nullopt;
  return std::bit_cast<ThreadCpus>(set);
}
bool Topology::give_this_thread(const ThreadCpus& cpus) const noexcept {
  const auto set = std::bit_cast<cpu_set_t>(cpus);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

int usable_cores(const Topology& topology, const CgroupSources& sources) {
  const std::optional<double> quota = cgroup_cpu_quota(sources);
  const int cores = std::max(1, topology.core_count());
  return quota && *quota < cores ? static_cast<int>(std::ceil(*quota)) : cores;
}

std::unique_ptr<Topology> make_topology(TopologyKind kind) {
  switch (kind) {
    case TopologyKind::kHwloc:
      return make_topology_hwloc();
    case TopologyKind::kFlat:
      return make_topology_flat();
    case TopologyKind::kAuto:
      break;
  }
  try {
    return make_topology_hwloc();
  } catch (const DeviceError& error) {
    return make_topology_flat(error.what());
  }
}

}  // namespace sluice
