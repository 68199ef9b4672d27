#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "core/errors.h"
#include "core/topology.h"

namespace sluice {
namespace {

// The affinity mask. The system refuses a set that is smaller than its own (EINVAL), which may be larger than a
// cpu_set_t.
std::vector<int> allowed_cpus() {
  constexpr size_t kMostSets = 1024;  // a million CPUs
  std::vector<int> cpus;
  for (size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> set(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) {
      for (size_t cpu = 0; cpu < 8 * bytes; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
      }
      break;
    }
    if (errno != EINVAL) break;
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

// The siblings' list names a physical core; where the system does not tell, every CPU is one.
std::string core_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string siblings;
  return std::getline(file, siblings) ? siblings : std::to_string(cpu);
}

class FlatTopology final : public Topology {
 public:
  explicit FlatTopology(std::string why) : why_(std::move(why)) {
    std::map<std::string, int> seen;  // per physical core: how many of its CPUs came already
    std::vector<std::pair<int, int>> order;
    for (const int cpu : allowed_cpus()) order.emplace_back(seen[core_of(cpu)]++, cpu);
    std::sort(order.begin(), order.end());
    for (const auto& [sibling, cpu] : order) cpus_.push_back(cpu);
    core_count_ = static_cast<int>(seen.size());
  }

  std::string describe() const override { return why_.empty() ? "flat" : fmt::format("flat ({})", why_); }
  int node_count() const override { return 1; }
  std::vector<int> cpus_of_node(int node) const override {
    SLUICE_CHECK(node == 0, "a flat machine has one node");
    return cpus_;
  }
  int cores_of_node(int /*node*/) const override { return core_count_; }
  int core_count() const override { return core_count_; }
  bool pin_this_thread(int cpu) const noexcept override { return run_on({&cpu, 1}); }
  bool keep_this_thread_on(int node) const noexcept override { return node <= 0 && run_on(cpus_); }
  bool bind_memory(std::span<std::byte> /*pages*/, int /*node*/) const noexcept override { return false; }
  std::string cpu_name() const override {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      const size_t colon = line.find(": ");
      if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
  }

 private:
  static bool run_on(std::span<const int> cpus) noexcept {
    if (std::ranges::min(cpus) < 0) return false;
    const size_t sets = static_cast<size_t>(std::ranges::max(cpus)) / CPU_SETSIZE + 1, bytes = sets * sizeof(cpu_set_t);
    const std::unique_ptr<cpu_set_t[]> set(new (std::nothrow) cpu_set_t[sets]());
    if (!set) return false;
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set.get());
    return sched_setaffinity(0, bytes, set.get()) == 0;
  }

  std::string why_;
  std::vector<int> cpus_;
  int core_count_ = 1;
};

}  // namespace

std::unique_ptr<Topology> make_topology_flat(std::string why) { return std::make_unique<FlatTopology>(std::move(why)); }

}  // namespace sluice
