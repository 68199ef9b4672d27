#include "core/topology.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/errors.h"

namespace sluice {
namespace {

// The flat twin, with the reason why it was taken.
class Fallback final : public Topology {
 public:
  Fallback(std::unique_ptr<Topology> flat, std::string why) : flat_(std::move(flat)), why_(std::move(why)) {}
  std::string describe() const override { return flat_->describe() + " (" + why_ + ")"; }
  int node_count() const override { return flat_->node_count(); }
  std::vector<int> cpus_of_node(int node) const override { return flat_->cpus_of_node(node); }
  int cores_of_node(int node) const override { return flat_->cores_of_node(node); }
  int core_count() const override { return flat_->core_count(); }
  bool pin_this_thread(int cpu) const noexcept override { return flat_->pin_this_thread(cpu); }
  bool keep_this_thread_on(int node) const noexcept override { return flat_->keep_this_thread_on(node); }
  bool bind_memory(std::span<std::byte> pages, int node) const noexcept override {
    return flat_->bind_memory(pages, node);
  }
  std::string cpu_name() const override { return flat_->cpu_name(); }

 private:
  std::unique_ptr<Topology> flat_;
  std::string why_;
};

}  // namespace

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
    return std::make_unique<Fallback>(make_topology_flat(), error.what());
  }
}

}  // namespace sluice
