#include "core/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

namespace sluice {
namespace {

std::set<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  return cpus;
}

std::set<int> cpus_of(const Topology& topology) {
  std::set<int> cpus;
  for (int node = 0; node < topology.node_count(); ++node) {
    for (const int cpu : topology.cpus_of_node(node)) {
      EXPECT_TRUE(cpus.insert(cpu).second) << "cpu " << cpu << " is in two nodes";
    }
  }
  return cpus;
}

class EveryTopology : public testing::TestWithParam<TopologyKind> {};
std::string name_of_case(const testing::TestParamInfo<TopologyKind>& given) {
  if (given.param == TopologyKind::kAuto) return "auto";
  return given.param == TopologyKind::kHwloc ? "hwloc" : "flat";
}
INSTANTIATE_TEST_SUITE_P(Twins, EveryTopology,
                         testing::Values(TopologyKind::kAuto, TopologyKind::kHwloc, TopologyKind::kFlat), name_of_case);

TEST_P(EveryTopology, shows_exactly_the_cpus_this_process_may_use) {
  const auto topology = make_topology(GetParam());
  EXPECT_EQ(cpus_of(*topology), allowed_cpus());
  EXPECT_GE(topology->core_count(), 1);
  EXPECT_LE(topology->core_count(), static_cast<int>(allowed_cpus().size()));
  EXPECT_FALSE(topology->cpu_name().empty());
}

TEST_P(EveryTopology, respects_a_narrower_affinity_mask) {
  std::thread([kind = GetParam()] {
    const int only = *allowed_cpus().rbegin();
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(only, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    const auto topology = make_topology(kind);
    EXPECT_EQ(cpus_of(*topology), std::set<int>{only});
    EXPECT_EQ(topology->core_count(), 1);
  }).join();
}

TEST_P(EveryTopology, pins_the_calling_thread) {
  const auto topology = make_topology(GetParam());
  const int cpu = topology->cpus_of_node(0).back();
  std::thread([&] {
    ASSERT_TRUE(topology->pin_this_thread(cpu));
    EXPECT_EQ(allowed_cpus(), std::set<int>{cpu});
    EXPECT_EQ(sched_getcpu(), cpu);
  }).join();
}

TEST_P(EveryTopology, answers_false_where_a_thread_cannot_be_pinned) {
  const auto topology = make_topology(GetParam());
  EXPECT_FALSE(topology->pin_this_thread(-1));
  EXPECT_FALSE(topology->pin_this_thread(1023));
}

TEST(Topology, twins_agree_on_cores_and_order) {
  const auto hwloc = make_topology_hwloc();
  const auto flat = make_topology_flat();
  EXPECT_EQ(hwloc->core_count(), flat->core_count());
  if (hwloc->node_count() == 1) {
    EXPECT_EQ(hwloc->cpus_of_node(0), flat->cpus_of_node(0));
  }
  EXPECT_EQ(flat->describe(), "flat");
  EXPECT_EQ(hwloc->describe().rfind("hwloc ", 0), 0u);
}

}  // namespace
}  // namespace sluice
