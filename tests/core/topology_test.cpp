#include "core/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "core/arena.h"
#include "core/errors.h"
#include "tests/fakes/many_cpus.h"

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

TEST(FlatTopology, shows_the_cpus_of_a_machine_with_more_of_them_than_a_set_of_the_c_library_holds) {
  if (!ManyCpus::reason().empty()) GTEST_SKIP() << ManyCpus::reason();
  const std::set<int> allowed = allowed_cpus();
  if (allowed == std::set<int>{0}) GTEST_SKIP() << "this process has CPU 0 alone, which an unknown machine shows, too";
  const ManyCpus many;
  EXPECT_EQ(cpus_of(*make_topology_flat()), allowed);
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
  EXPECT_FALSE(topology->pin_this_thread(5000));
}

TEST_P(EveryTopology, keeps_the_calling_thread_on_a_node_and_lets_it_go) {
  const auto topology = make_topology(GetParam());
  const std::set<int> all = allowed_cpus();
  std::thread([&] {
    const std::vector<int> cpus = topology->cpus_of_node(0);
    ASSERT_TRUE(topology->pin_this_thread(cpus.back()));
    ASSERT_TRUE(topology->keep_this_thread_on(0));
    EXPECT_EQ(allowed_cpus(), std::set<int>(cpus.begin(), cpus.end()));
    ASSERT_TRUE(topology->keep_this_thread_on(Topology::kEveryNode));
    EXPECT_EQ(allowed_cpus(), all);
    EXPECT_FALSE(topology->keep_this_thread_on(topology->node_count()));
  }).join();
}

TEST_P(EveryTopology, tells_the_cpus_of_the_calling_thread_and_gives_them_back) {
  const auto topology = make_topology(GetParam());
  std::thread([&] {
    ASSERT_TRUE(topology->pin_this_thread(topology->cpus_of_node(0).back()));
    const std::set<int> pinned = allowed_cpus();
    const auto cpus = topology->cpus_of_this_thread();
    ASSERT_TRUE(cpus);
    ASSERT_TRUE(topology->keep_this_thread_on(Topology::kEveryNode));
    EXPECT_EQ(topology->cpus_of_this_thread() == cpus, allowed_cpus() == pinned);
    ASSERT_TRUE(topology->give_this_thread(*cpus));
    EXPECT_EQ(allowed_cpus(), pinned);
    EXPECT_FALSE(topology->give_this_thread({})) << "a thread that may run nowhere";
    EXPECT_EQ(allowed_cpus(), pinned);
  }).join();
}

TEST_P(EveryTopology, binds_memory_or_answers_false_and_leaves_its_bytes_alone) {
  const auto topology = make_topology(GetParam());
  const Arena arena(1 << 20);
  arena.at(5)[0] = std::byte{42};
  for (int node = -1; node <= topology->node_count(); ++node) {
    const bool bound = topology->bind_memory(arena.span(), node);
    if (node < 0 || node >= topology->node_count()) {
      EXPECT_FALSE(bound);
    }
  }
  EXPECT_EQ(arena.at(5)[0], std::byte{42});
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

using Cpus = std::vector<int>;

TEST(SyntheticTopology, shows_the_cpus_of_each_node_a_core_at_a_time) {
  const auto two = make_topology_synthetic("numa:2 core:3 pu:2");
  ASSERT_EQ(two->node_count(), 2);
  EXPECT_EQ(two->core_count(), 6);
  EXPECT_EQ(two->cpus_of_node(0), (Cpus{0, 2, 4, 1, 3, 5}));  // siblings last
  EXPECT_EQ(two->cpus_of_node(1), (Cpus{6, 8, 10, 7, 9, 11}));
  const auto four = make_topology_synthetic("pack:2 numa:2 core:2 pu:1");
  ASSERT_EQ(four->node_count(), 4);
  EXPECT_EQ(four->core_count(), 8);
  EXPECT_EQ(four->cpus_of_node(3), (Cpus{6, 7}));
}

TEST(SyntheticTopology, respects_holes_in_the_set_of_allowed_cpus) {
  // Node 0: one sibling of core 0, core 2; node 1: nothing; node 2: the second siblings alone.
  const Cpus allowed = {1, 4, 5, 13, 15, 17};
  const auto topology = make_topology_synthetic("numa:3 core:3 pu:2", allowed);
  ASSERT_EQ(topology->node_count(), 2);
  EXPECT_EQ(topology->cpus_of_node(0), (Cpus{1, 4, 5}));  // 4 and 5 share a core
  EXPECT_EQ(topology->cpus_of_node(1), (Cpus{13, 15, 17}));
  EXPECT_EQ(topology->core_count(), 5);
  EXPECT_EQ(topology->cores_of_node(0), 2);
  EXPECT_EQ(topology->cores_of_node(1), 3);
}

// Fast memory beside slow, a package's own beside the machine's: hwloc gives both nodes the same CPUs.
TEST(SyntheticTopology, counts_cpus_of_several_nodes_once) {
  const auto beside = make_topology_synthetic("pack:2 [numa] [numa] core:2 pu:1");
  ASSERT_EQ(beside->node_count(), 2);
  EXPECT_EQ(beside->core_count(), 4);
  EXPECT_EQ(cpus_of(*beside), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(beside->cpus_of_node(1), (Cpus{2, 3}));
  const auto above = make_topology_synthetic("[numa] pack:2 [numa] core:2 pu:1");
  ASSERT_EQ(above->node_count(), 2);
  EXPECT_EQ(above->core_count(), 4);
  EXPECT_EQ(above->cpus_of_node(0), (Cpus{0, 1}));
}

TEST(SyntheticTopology, knows_nodes_by_the_systems_numbers) {
  const Cpus allowed = {1, 13};  // of nodes 0 and 2
  const auto topology = make_topology_synthetic("numa:3 core:3 pu:2", allowed);
  EXPECT_EQ(topology->node_of_system(0), 0);
  EXPECT_EQ(topology->node_of_system(1), -1);
  EXPECT_EQ(topology->node_of_system(2), 1);
  EXPECT_EQ(topology->node_of_system(-1), -1);
  EXPECT_EQ(topology->node_of_system(64), -1);
}

TEST(SyntheticTopology, pins_nothing_on_this_machine) {
  const auto topology = make_topology_synthetic("numa:2 core:64 pu:2");
  const std::set<int> before = allowed_cpus();
  EXPECT_TRUE(topology->pin_this_thread(200));
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(SyntheticTopology, binds_no_memory_of_this_machine) {
  const auto topology = make_topology_synthetic("numa:2 core:64 pu:2");
  const Arena arena(1 << 20);
  EXPECT_TRUE(topology->bind_memory(arena.span(), 1));
  EXPECT_FALSE(topology->bind_memory(arena.span(), 2));
}

TEST(SyntheticTopology, refuses_words_that_describe_no_machine) {
  EXPECT_THROW(make_topology_synthetic("numa:two"), ConfigError);
}

}  // namespace
}  // namespace sluice
