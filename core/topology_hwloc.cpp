#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>

#include "core/errors.h"
#include "core/topology.h"

namespace sluice {
namespace {

using Set = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;
Set empty_set() { return Set(hwloc_bitmap_alloc(), hwloc_bitmap_free); }

class HwlocTopology final : public Topology {
 public:
  HwlocTopology() : topology_(initialized()) {
    load();
    const Set allowed = empty_set();
    if (hwloc_get_cpubind(topology_.get(), allowed.get(), HWLOC_CPUBIND_THREAD) != 0) hwloc_bitmap_fill(allowed.get());
    find_cpus(allowed.get());
  }
  HwlocTopology(const std::string& description, std::span<const int> cpus) : topology_(initialized()) {
    if (hwloc_topology_set_synthetic(topology_.get(), description.c_str()) != 0) {
      throw ConfigError(
          fmt::format("\"{}\" describes no machine to hwloc; an example: numa:2 core:4 pu:2", description));
    }
    load();
    const Set allowed = empty_set();
    if (cpus.empty()) hwloc_bitmap_fill(allowed.get());
    for (const int cpu : cpus) hwloc_bitmap_set(allowed.get(), static_cast<unsigned>(cpu));
    find_cpus(allowed.get());
  }

  std::string describe() const override { return "hwloc " HWLOC_VERSION; }
  int node_count() const override { return static_cast<int>(cpus_of_nodes_.size()); }
  std::vector<int> cpus_of_node(int node) const override { return cpus_of_nodes_.at(static_cast<size_t>(node)); }
  int cores_of_node(int node) const override { return cores_of_nodes_.at(static_cast<size_t>(node)); }
  int core_count() const override { return core_count_; }
  bool pin_this_thread(int cpu) const noexcept override {
    if (cpu < 0) return false;
    const Set set = empty_set();
    if (!set || hwloc_bitmap_only(set.get(), static_cast<unsigned>(cpu)) != 0) return false;
    return hwloc_set_cpubind(topology_.get(), set.get(), HWLOC_CPUBIND_THREAD) == 0;
  }
  bool keep_this_thread_on(int node) const noexcept override {
    const Set set = empty_set();
    if (!set || node < kEveryNode || node >= node_count()) return false;
    for (int each = 0; each < node_count(); ++each) {
      if (node != kEveryNode && node != each) continue;
      for (const int cpu : cpus_of_nodes_[static_cast<size_t>(each)]) {
        if (hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu)) != 0) return false;
      }
    }
    return hwloc_set_cpubind(topology_.get(), set.get(), HWLOC_CPUBIND_THREAD) == 0;
  }
  int node_of_system(int number) const override {
    for (int node = 0; number >= 0 && node < node_count(); ++node) {
      const hwloc_const_nodeset_t memory = memory_of_nodes_[static_cast<size_t>(node)];
      if (memory != nullptr && hwloc_bitmap_isset(memory, static_cast<unsigned>(number))) return node;
    }
    return -1;
  }
  bool bind_memory(std::span<std::byte> pages, int node) const noexcept override {
    if (node < 0 || node >= node_count() || !memory_of_nodes_[static_cast<size_t>(node)]) return false;
    return hwloc_set_area_membind(topology_.get(), pages.data(), pages.size(),
                                  memory_of_nodes_[static_cast<size_t>(node)], HWLOC_MEMBIND_BIND,
                                  HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_MIGRATE | HWLOC_MEMBIND_NOCPUBIND) == 0;
  }
  std::string cpu_name() const override {
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology_.get(), HWLOC_OBJ_PACKAGE, 0);
    const char* name =
        hwloc_obj_get_info_by_name(package != nullptr ? package : hwloc_get_root_obj(topology_.get()), "CPUModel");
    return name != nullptr ? name : "unknown";
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw DeviceError(
        fmt::format("{} failed: {}; set the topology to flat", call, std::generic_category().message(errno)));
  }

  using Handle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
  static Handle initialized() {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) refuse("hwloc_topology_init");
    return Handle(topology, hwloc_topology_destroy);
  }
  void load() {
    if (hwloc_topology_load(topology_.get()) != 0) refuse("hwloc_topology_load");
  }

  // What the machine has, the container allows and `allowed` (the affinity mask) leaves.
  void find_cpus(hwloc_bitmap_t allowed_cpus) {
    const Set allowed(hwloc_bitmap_dup(allowed_cpus), hwloc_bitmap_free);
    hwloc_bitmap_and(allowed.get(), allowed.get(), hwloc_topology_get_allowed_cpuset(topology_.get()));
    std::vector<hwloc_obj_t> nodes;
    for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, node));) {
      nodes.push_back(node);
    }
    // Nodes may share CPUs: a package's own memory beside the machine's, fast memory beside slow. A CPU belongs to the
    // nearest of its nodes, and of several equally near ones to the first.
    std::sort(nodes.begin(), nodes.end(), [](hwloc_obj_t a, hwloc_obj_t b) {
      const int of_a = hwloc_bitmap_weight(a->cpuset), of_b = hwloc_bitmap_weight(b->cpuset);
      return of_a != of_b ? of_a < of_b : a->logical_index < b->logical_index;
    });
    const Set left(hwloc_bitmap_dup(allowed.get()), hwloc_bitmap_free);
    for (const hwloc_obj_t node : nodes) {
      const Set here = empty_set();
      hwloc_bitmap_and(here.get(), left.get(), node->cpuset);
      // A node without CPUs (memory only, or outside the affinity mask) has no work to give.
      if (hwloc_bitmap_iszero(here.get())) continue;
      add_node(here.get(), node->nodeset);
      hwloc_bitmap_andnot(left.get(), left.get(), here.get());
    }
    if (cpus_of_nodes_.empty()) add_node(allowed.get(), nullptr);
    core_count_ = std::accumulate(cores_of_nodes_.begin(), cores_of_nodes_.end(), 0);
  }

  // os indices: the first allowed CPU of each core, then the second of each, and so on. `memory` is the topology's.
  void add_node(hwloc_const_bitmap_t here, hwloc_const_nodeset_t memory) {
    memory_of_nodes_.push_back(memory);
    std::vector<std::pair<int, int>> order;
    int cpu = -1;
    while ((cpu = hwloc_bitmap_next(here, cpu)) >= 0) {
      const hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology_.get(), static_cast<unsigned>(cpu));
      const hwloc_obj_t core = unit ? hwloc_get_ancestor_obj_by_type(topology_.get(), HWLOC_OBJ_CORE, unit) : nullptr;
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
    cpus_of_nodes_.push_back(std::move(cpus));
    cores_of_nodes_.push_back(
        static_cast<int>(std::count_if(order.begin(), order.end(), [](const auto& each) { return each.first == 0; })));
  }

  Handle topology_;
  std::vector<std::vector<int>> cpus_of_nodes_;
  std::vector<int> cores_of_nodes_;
  std::vector<hwloc_const_nodeset_t> memory_of_nodes_;  // null: not known
  int core_count_ = 1;
};

}  // namespace

std::unique_ptr<Topology> make_topology_hwloc() { return std::make_unique<HwlocTopology>(); }

std::unique_ptr<Topology> make_topology_synthetic(const std::string& description, std::span<const int> allowed) {
  return std::make_unique<HwlocTopology>(description, allowed);
}

}  // namespace sluice
