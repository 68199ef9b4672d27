// The machine: NUMA nodes, cores, memory and limits of this process (cpuset and cgroup respected).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cgroup.h"

namespace sluice {

// The CPUs that a thread may run on, a bit each.
struct ThreadCpus {
  std::array<uint64_t, 16> bits{};
  bool operator==(const ThreadCpus&) const = default;
};

class Topology {
 public:
  virtual ~Topology() = default;
  // "hwloc 2.9.0" or "flat".
  virtual std::string describe() const = 0;
  virtual int node_count() const = 0;
  // Logical CPUs this process may use, one per physical core first, then their siblings; os indices.
  virtual std::vector<int> cpus_of_node(int node) const = 0;
  // How many physical cores those are: as many of the list's first CPUs share no core.
  virtual int cores_of_node(int node) const { return static_cast<int>(cpus_of_node(node).size()); }
  // Number of physical cores this process may use.
  virtual int core_count() const = 0;
  // Pins the calling thread; best effort: false where the system refuses. Never throws.
  virtual bool pin_this_thread(int cpu) const noexcept = 0;
  // The calling thread, and those that it starts from then on, run on this node's CPUs alone; kEveryNode: on all that
  // this process may use. Best effort, as above.
  static constexpr int kEveryNode = -1;
  virtual bool keep_this_thread_on(int node) const noexcept = 0;
  // The calling thread's, and the same given to it. Best effort: nothing, or false, where the system refuses or has
  // more than these. No allocation.
  virtual std::optional<ThreadCpus> cpus_of_this_thread() const noexcept;
  virtual bool give_this_thread(const ThreadCpus& cpus) const noexcept;
  // The node that the system knows by this number; -1: there is none, or this process may use no CPU of it.
  virtual int node_of_system(int number) const { return number >= 0 && number < node_count() ? number : -1; }
  // The pages of a mapping of this process are to lie on a node; those touched already move. Best effort: false where
  // the system refuses or memory has one place only. Never throws.
  virtual bool bind_memory(std::span<std::byte> pages, int node) const noexcept = 0;
  virtual std::string cpu_name() const = 0;
};

enum class TopologyKind { kAuto, kHwloc, kFlat };
// kAuto tries hwloc and falls back to flat (one node), and describe() then says why. CPUs are those of the calling
// thread's affinity mask: make a topology before any thread is pinned.
std::unique_ptr<Topology> make_topology(TopologyKind kind = TopologyKind::kAuto);
std::unique_ptr<Topology> make_topology_hwloc();
std::unique_ptr<Topology> make_topology_flat(std::string why = {});  // why: it was taken, for describe()
// A machine that is not this one, in hwloc's words ("numa:2 core:4 pu:2"), of whose CPUs only `allowed` may be used
// (empty: all). Pinning to its CPUs and binding to its nodes succeed
// and do nothing. Throws ConfigError for other words.
std::unique_ptr<Topology> make_topology_synthetic(const std::string& description, std::span<const int> allowed = {});

// How many threads have a core to themselves: core_count(), or fewer where the control group's quota of CPU time is
// less.
int usable_cores(const Topology& topology, const CgroupSources& sources = {});

// Bytes of host memory that may still be taken: MemAvailable, capped by the cgroup's limit.
int64_t available_host_bytes();
int64_t resident_bytes();       // of this process now (VmRSS)
int64_t peak_resident_bytes();  // VmHWM

}  // namespace sluice
