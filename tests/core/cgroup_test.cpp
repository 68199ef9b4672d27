// Limits of control groups, from folders as the kernel shows them.
#include "core/cgroup.h"

#include <gtest/gtest.h>

#include "core/topology.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

class Cgroup : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { folder_.write(name, text + "\n"); }
  CgroupSources sources() const { return {.membership = folder_.path() / "self", .root = folder_.path() / "cgroup"}; }
  std::optional<double> quota() const { return cgroup_cpu_quota(sources()); }
  std::optional<int64_t> memory_left() const { return cgroup_memory_left(sources()); }

  TempFolder folder_;
};

TEST_F(Cgroup, without_limits_limits_nothing) {
  EXPECT_EQ(quota(), std::nullopt);
  EXPECT_EQ(memory_left(), std::nullopt);
  write("self", "0::/job");
  write("cgroup/job/cpu.max", "max 100000");
  write("cgroup/job/memory.max", "max");
  write("cgroup/job/memory.current", "5");
  EXPECT_EQ(quota(), std::nullopt);
  EXPECT_EQ(memory_left(), std::nullopt);
}

TEST_F(Cgroup, of_version_2_has_the_tightest_limit_of_all_that_hold_it) {
  write("self", "0::/slice/job");
  write("cgroup/slice/job/cpu.max", "400000 100000");
  EXPECT_EQ(quota(), 4);
  write("cgroup/slice/cpu.max", "125000 50000");
  EXPECT_EQ(quota(), 2.5);
  write("cgroup/cpu.max", "300000 100000");
  EXPECT_EQ(quota(), 2.5);
  write("cgroup/slice/memory.max", "1000");
  write("cgroup/slice/memory.current", "700");
  write("cgroup/slice/memory.stat", "anon 400\ninactive_file 250");
  EXPECT_EQ(memory_left(), 550);
  write("cgroup/slice/job/memory.max", "500");
  write("cgroup/slice/job/memory.current", "600");
  EXPECT_EQ(memory_left(), 0);
}

TEST_F(Cgroup, of_version_1_is_found_below_its_controller) {
  write("self", "7:memory:/job\n3:cpu,cpuacct:/box/job\n1:name=systemd:/");
  write("cgroup/cpu/box/job/cpu.cfs_quota_us", "-1");
  write("cgroup/cpu/box/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), std::nullopt);
  write("cgroup/cpu/box/cpu.cfs_quota_us", "150000");
  write("cgroup/cpu/box/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 1.5);
  write("cgroup/memory/job/memory.limit_in_bytes", "1000");
  write("cgroup/memory/job/memory.usage_in_bytes", "900");
  write("cgroup/memory/job/memory.stat", "total_inactive_file 100");
  EXPECT_EQ(memory_left(), 200);
}

TEST_F(Cgroup, whose_path_is_not_mounted_here_is_the_root) {
  write("self", "0::/kubepods/pod/container");
  write("cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(Cgroup, of_nonsense_limits_nothing) {
  write("self", "0::/\nno colons\n:");
  for (const char* text : {"", "0 100000", "100000 0", "100000", "many 100000"}) {
    write("cgroup/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

TEST_F(Cgroup, quota_leaves_as_many_usable_cores_as_it_begins) {
  const auto topology = make_topology_synthetic("numa:2 core:4 pu:2");
  EXPECT_EQ(usable_cores(*topology, sources()), 8);
  write("self", "0::/");
  for (const auto& [text, cores] : {std::pair("1000 100000", 1), std::pair("200000 100000", 2),
                                    std::pair("250000 100000", 3), std::pair("9900000 100000", 8)}) {
    write("cgroup/cpu.max", text);
    EXPECT_EQ(usable_cores(*topology, sources()), cores) << text;
  }
}

}  // namespace
}  // namespace sluice
