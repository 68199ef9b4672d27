// Where `bench adam` puts its planes on machines of several NUMA nodes, and who sweeps over them.
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "bench/adam_planes.h"
#include "core/bytes.h"
#include "tests/fakes/binding_topology.h"

namespace sluice {
namespace {

constexpr AdamFormat kFormat{.precision = Precision::kBf16, .gradient = DType::kBf16, .moments = DType::kFp32};
constexpr int64_t kElements = int64_t{4} * kMiB + 128;

// Every element once, by a group whose share it is in.
void expect_whole(const std::vector<BenchChunk>& chunks, const std::vector<NodeShare>& shares) {
  std::vector<int> seen(static_cast<size_t>(kElements) / 128, 0);
  for (const BenchChunk& chunk : chunks) {
    ASSERT_EQ(chunk.first % 128, 0);
    ASSERT_GT(chunk.elements, 0);
    const NodeShare& share = shares.at(static_cast<size_t>(chunk.group));
    EXPECT_GE(chunk.first, share.first);
    EXPECT_LE(chunk.first + chunk.elements, share.first + share.elements);
    for (int64_t i = chunk.first; i < chunk.first + chunk.elements; i += 128) ++seen[static_cast<size_t>(i) / 128];
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST(BenchPlanesOnNodes, are_shared_out_by_threads_in_whole_chunks) {
  const std::vector<TeamGroup> groups = {{.node = 0, .threads = 1}, {.node = 2, .threads = 3}};
  const auto shares = node_shares(kElements, groups);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].elements, kElements * 1 / 4 / kMiB * kMiB + kMiB) << "whole pages of every plane";
  EXPECT_EQ(shares[1].first, shares[0].elements);
  const auto equal = equal_chunks(shares);
  expect_whole(equal, shares);
  EXPECT_NE(equal[0].group, equal[1].group) << "nodes take turns";
  expect_whole(uneven_chunks(shares, 1 << 16), shares);
  EXPECT_EQ(node_shares(4096, groups).size(), 1u) << "less than a page: one node's";
}

TEST(BenchPlanesOnNodes, lie_with_the_threads_that_sweep_over_them) {
  Touched touched;
  const BindingTopology machine("numa:2 core:2 pu:1", touched);
  const auto shares = node_shares(kElements, team_groups(machine, 4));
  const BenchPlanes planes(kFormat, machine, shares);
  ASSERT_EQ(touched.bound_bytes.size(), 2u);
  constexpr int64_t kElementBytes = 4 + 2 + 2 + 2 + 4 + 4;  // scratch, gradient, weights, residual, two moments
  for (const NodeShare& share : shares) {
    EXPECT_GE(touched.bound_bytes[share.threads.node], share.elements * kElementBytes);
    EXPECT_LE(touched.bound_bytes[share.threads.node], share.elements * kElementBytes + 6 * 2 * kMiB);
  }
  touched.bound_bytes.clear();
  const BindingTopology one("core:2 pu:1", touched);
  const BenchPlanes whole(kFormat, one, node_shares(kElements, team_groups(one, 2)));
  EXPECT_TRUE(touched.bound_bytes.empty()) << "one node: nothing to choose";
}

TEST(BenchPlanesOnNodes, are_swept_over_once) {
  const auto machine = make_topology();
  const auto team = make_update_team(*machine, 2);
  const auto shares = node_shares(kElements, team_groups(*machine, 2));
  std::mutex mutex;
  int64_t elements = 0;
  const SweepTimes times = sweep(*team, equal_chunks(shares), [&](int64_t, int64_t count) {
    const std::lock_guard lock(mutex);
    elements += count;
  });
  EXPECT_EQ(elements, kElements);
  EXPECT_LE(times.first_ns, times.all_ns);
}

}  // namespace
}  // namespace sluice
