#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/errors.h"
#include "core/topology.h"

namespace sluice {
namespace {

using Set = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;
Set empty_set() { return Set(hwloc_bitmap_alloc(), hwloc_bitmap_free); }

class HwlocTopology final : public Topology {
 public:
  HwlocTopology() {
    if (hwloc_topology_init(&topology_) != 0) refuse("hwloc_topology_init");
    if (hwloc_topology_load(topology_) != 0) {
      const int error = errno;
      hwloc_topology_destroy(topology_);
      errno = error;
      refuse("hwloc_topology_load");
    }
    find_cpus();
  }
  ~HwlocTopology() override { hwloc_topology_destroy(topology_); }
  HwlocTopology(const HwlocTopology&) = delete;
  HwlocTopology& operator=(const HwlocTopology&) = delete;

  std::string describe() const override { return "hwloc " HWLOC_VERSION; }
  int node_count() const override { return static_cast<int>(cpus_of_nodes_.size()); }
  std::vector<int> cpus_of_node(int node) const override { return cpus_of_nodes_.at(static_cast<size_t>(node)); }
  int core_count() const override { return core_count_; }
  bool pin_this_thread(int cpu) const noexcept override {
    if (cpu < 0) return false;
    const Set set = empty_set();
    if (!set || hwloc_bitmap_only(set.get(), static_cast<unsigned>(cpu)) != 0) return false;
    return hwloc_set_cpubind(topology_, set.get(), HWLOC_CPUBIND_THREAD) == 0;
  }
  std::string cpu_name() const override {
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
    const char* name =
        hwloc_obj_get_info_by_name(package != nullptr ? package : hwloc_get_root_obj(topology_), "CPUModel");
    return name != nullptr ? name : "unknown";
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw DeviceError(
        fmt::format("{} failed: {}; set the topology to flat", call, std::generic_category().message(errno)));
  }

  // What the machine has, the container allows and the calling thread's affinity mask leaves.
  void find_cpus() {
    const Set allowed = empty_set();
    if (hwloc_get_cpubind(topology_, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) hwloc_bitmap_fill(allowed.get());
    hwloc_bitmap_and(allowed.get(), allowed.get(), hwloc_topology_get_allowed_cpuset(topology_));
    for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node));) {
      const Set here = empty_set();
      hwloc_bitmap_and(here.get(), allowed.get(), node->cpuset);
      // A node without CPUs (memory only, or outside the affinity mask) has no work to give.
      if (!hwloc_bitmap_iszero(here.get())) cpus_of_nodes_.push_back(cores_first(here.get()));
    }
    if (cpus_of_nodes_.empty()) cpus_of_nodes_.push_back(cores_first(allowed.get()));
    const Set in_core = empty_set();
    core_count_ = 0;
    for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_CORE, core));) {
      hwloc_bitmap_and(in_core.get(), allowed.get(), core->cpuset);
      core_count_ += hwloc_bitmap_iszero(in_core.get()) ? 0 : 1;
    }
    if (core_count_ == 0) core_count_ = std::max(1, hwloc_bitmap_weight(allowed.get()));
  }

  // os indices: the first allowed CPU of each core, then the second of each, and so on.
  std::vector<int> cores_first(hwloc_const_bitmap_t here) const {
    std::vector<std::pair<int, int>> order;
    int cpu = -1;
    while ((cpu = hwloc_bitmap_next(here, cpu)) >= 0) {
      const hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology_, static_cast<unsigned>(cpu));
      const hwloc_obj_t core = unit ? hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_CORE, unit) : nullptr;
      int sibling = 0;
      for (int before = core ? hwloc_bitmap_first(core->cpuset) : cpu; before >= 0 && before < cpu;
           before = hwloc_bitmap_next(core->cpuset, before)) {
        sibling += hwloc_bitmap_isset(here, static_cast<unsigned>(before)) ? 1 : 0;
      }
      order.emplace_back(sibling, cpu);
    }
    std::sort(order.begin(), order.end());
    std::vector<int> cpus;
    for (const auto& [sibling, index] : order) cpus.push_back(index);
    return cpus;
  }

  hwloc_topology_t topology_ = nullptr;
  std::vector<std::vector<int>> cpus_of_nodes_;
  int core_count_ = 1;
};

}  // namespace

std::unique_ptr<Topology> make_topology_hwloc() { return std::make_unique<HwlocTopology>(); }

}  // namespace sluice
