// The machine: NUMA nodes, cores, memory and limits of this process (cpuset and cgroup respected).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

class Topology {
 public:
  virtual ~Topology() = default;
  // "hwloc 2.9.0" or "flat".
  virtual std::string describe() const = 0;
  virtual int node_count() const = 0;
  // Logical CPUs this process may use, one per physical core first, then their siblings; os indices.
  virtual std::vector<int> cpus_of_node(int node) const = 0;
  // Number of physical cores this process may use.
  virtual int core_count() const = 0;
  // Pins the calling thread; best effort: false where the system refuses. Never throws.
  virtual bool pin_this_thread(int cpu) const noexcept = 0;
  virtual std::string cpu_name() const = 0;
};

enum class TopologyKind { kAuto, kHwloc, kFlat };
// kAuto tries hwloc and falls back to flat (one node), and describe() then says why. CPUs are those of the calling
// thread's affinity mask: make a topology before any thread is pinned.
std::unique_ptr<Topology> make_topology(TopologyKind kind = TopologyKind::kAuto);
std::unique_ptr<Topology> make_topology_hwloc();
std::unique_ptr<Topology> make_topology_flat();

// Bytes of host memory that may still be taken: MemAvailable, capped by the cgroup's limit.
int64_t available_host_bytes();
int64_t resident_bytes();       // of this process now (VmRSS)
int64_t peak_resident_bytes();  // VmHWM

}  // namespace sluice
