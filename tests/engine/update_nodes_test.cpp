// Which NUMA node updates which chunk, and which threads stay near the device, on machines that are not there.
#include "engine/update_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/bytes.h"
#include "tests/engine/engine_fixture.h"
#include "tests/fakes/binding_topology.h"

namespace sluice::testing {
namespace {

constexpr int64_t kState = 10 * kMiB, kWeights = 2 * kMiB;

// Chunks that have their planes for themselves: states first, then weights, then gradients.
std::vector<UpdateRanges> at_home(int chunks) {
  std::vector<UpdateRanges> all;
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t weights = chunks * kState, gradients = weights + chunks * kWeights;
    all.push_back({.state = {i * kState, kState},
                   .weights = {weights + i * kWeights, kWeights},
                   .gradient = {gradients + i * kWeights, kWeights}});
  }
  return all;
}

std::map<int, int> count_of(const UpdateNodes& nodes, const std::vector<UpdateRanges>& updates) {
  std::map<int, int> counts;
  for (const UpdateRanges& update : updates) ++counts[nodes.group_at(update.state.offset)];
  return counts;
}

TEST(UpdateNodes, give_every_group_work_in_proportion_to_its_threads) {
  const std::vector<UpdateRanges> updates = at_home(16);
  const std::vector<TeamGroup> even = {{.node = 0, .threads = 4}, {.node = 1, .threads = 4}};
  EXPECT_EQ(count_of(UpdateNodes(updates, even), updates), (std::map<int, int>{{0, 8}, {1, 8}}));
  const std::vector<TeamGroup> uneven = {{.node = 0, .threads = 1}, {.node = 2, .threads = 3}};
  EXPECT_EQ(count_of(UpdateNodes(updates, uneven), updates), (std::map<int, int>{{0, 4}, {1, 12}}));
}

TEST(UpdateNodes, keep_all_planes_of_a_chunk_on_one_node) {
  const std::vector<UpdateRanges> updates = at_home(12);
  const std::vector<TeamGroup> groups = team_groups(*make_topology_synthetic("numa:4 core:2 pu:2"), 0);
  ASSERT_EQ(groups.size(), 4u);
  const UpdateNodes nodes(updates, groups);
  for (const UpdateRanges& update : updates) {
    const int group = nodes.group_at(update.state.offset);
    for (const HostRange& range : {update.state, update.weights, update.gradient}) {
      EXPECT_EQ(nodes.group_at(range.offset), group);
      EXPECT_EQ(nodes.group_at(range.offset + range.bytes - 1), group);
    }
  }
}

TEST(UpdateNodes, keep_a_buffer_that_many_chunks_pass_through_on_one_node) {
  std::vector<UpdateRanges> updates;
  for (int64_t i = 0; i < 40; ++i)
    updates.push_back({.state = {i % 4 * kState, kState}, .weights = {}, .gradient = {}});
  const std::vector<TeamGroup> groups = {{.node = 0, .threads = 2}, {.node = 1, .threads = 2}};
  const UpdateNodes nodes(updates, groups);
  EXPECT_EQ(count_of(nodes, updates), (std::map<int, int>{{0, 20}, {1, 20}}));
  for (int64_t buffer = 0; buffer < 4; ++buffer) {
    EXPECT_EQ(nodes.group_at(buffer * kState), nodes.group_at((buffer + 1) * kState - 1));
    EXPECT_NE(nodes.group_at(buffer * kState), nodes.group_at((buffer + 1) % 4 * kState)) << "neighbours alternate";
  }
}

// Chunks of many sizes wrap around a ring: buffers of later rounds lie across those of earlier ones.
TEST(UpdateNodes, leave_no_byte_of_an_update_to_two_groups_or_none) {
  std::vector<UpdateRanges> updates;
  constexpr int64_t kRing = 64 * kMiB;
  for (int64_t i = 0, at = 0; i < 100; ++i) {
    const int64_t bytes = (1 + i * 7 % 13) * kMiB + i % 3 * 4096;
    if (at + bytes > kRing) at = 0;
    updates.push_back({.state = {at, bytes}, .weights = {kRing + i * kMiB, kMiB}, .gradient = {}});
    at += bytes;
  }
  const std::vector<TeamGroup> groups = {
      {.node = 0, .threads = 3}, {.node = 1, .threads = 2}, {.node = 2, .threads = 1}};
  const UpdateNodes nodes(updates, groups);
  constexpr int64_t kArena = kRing + 100 * kMiB;
  std::vector<int> owners(kArena / 4096, 0);
  for (int group = 0; group < 3; ++group) {
    for (const HostRange& pages : nodes.pages_of(group, kArena)) {
      EXPECT_EQ(pages.offset % (2 * kMiB), 0);
      for (int64_t at = pages.offset; at < pages.offset + pages.bytes; at += 4096) ++owners[at / 4096];
    }
  }
  for (const UpdateRanges& update : updates) {
    for (const HostRange& range : {update.state, update.weights}) {
      for (int64_t at = range.offset; at < range.offset + range.bytes; at += 4096) {
        ASSERT_NE(nodes.group_at(at), UpdateTeam::kAnyGroup) << at;
        ASSERT_EQ(owners[at / 4096], 1) << at;
      }
    }
  }
}

TEST(UpdateNodes, leave_to_everybody_what_no_update_touches) {
  const std::vector<TeamGroup> groups = {{.node = 0, .threads = 1}, {.node = 1, .threads = 1}};
  const std::vector<UpdateRanges> updates = {{.state = {4096, 4096}, .weights = {}, .gradient = {}}};
  const UpdateNodes nodes(updates, groups);
  EXPECT_EQ(nodes.group_at(4095), UpdateTeam::kAnyGroup);
  EXPECT_EQ(nodes.group_at(4096), 0);
  EXPECT_EQ(nodes.group_at(8192), UpdateTeam::kAnyGroup);
  EXPECT_EQ(UpdateNodes({}, {}).group_at(4096), UpdateTeam::kAnyGroup);
}

void expect_pages(const std::vector<HostRange>& found, const std::vector<std::pair<int64_t, int64_t>>& in_mib) {
  std::vector<std::pair<int64_t, int64_t>> pages;
  for (const HostRange& range : found) pages.emplace_back(range.offset / kMiB, range.bytes / kMiB);
  EXPECT_EQ(pages, in_mib);
}

// 2 MiB a page; in MiB:  0  1  2  3  4  5  6  7  8  9 10 11 12 ... 18 19 20 21 22 23 24
//                        A  A  A  A  .  B  .  .  B  A  B  B  .      .  B  B  .  .  .  .
TEST(UpdateNodes, give_each_group_its_pages_and_one_that_they_share_to_its_last_owner) {
  const auto range = [](int64_t first, int64_t mib) { return HostRange{first * kMiB, mib * kMiB}; };
  const std::vector<UpdateRanges> updates = {
      {.state = range(0, 3), .weights = range(3, 1), .gradient = {}},
      {.state = range(5, 1), .weights = {}, .gradient = {}},
      {.state = range(0, 3), .weights = range(9, 1), .gradient = {}},  // the first one's buffer: stays with its group
      {.state = range(8, 4), .weights = {}, .gradient = {}},           // on both sides of those weights
      {.state = range(19, 2), .weights = {}, .gradient = {}}};
  const std::vector<TeamGroup> groups = {{.node = 0, .threads = 1}, {.node = 1, .threads = 1}};
  const UpdateNodes nodes(updates, groups);
  std::string owners;
  for (int64_t at = 0; at < 25; ++at) {
    const int group = nodes.group_at(at * kMiB);
    owners += group == UpdateTeam::kAnyGroup ? '.' : static_cast<char>('A' + group);
  }
  EXPECT_EQ(owners, "AAAA.B..BABB.......BB....");
  expect_pages(nodes.pages_of(0, 25 * kMiB), {{0, 4}, {8, 2}});
  expect_pages(nodes.pages_of(1, 25 * kMiB), {{4, 2}, {10, 2}, {18, 4}});
  expect_pages(nodes.pages_of(UpdateTeam::kAnyGroup, 25 * kMiB), {{6, 2}, {12, 6}, {22, 3}});
  expect_pages(nodes.pages_of(1, 21 * kMiB), {{4, 2}, {10, 2}, {18, 3}});
}

TEST(UpdateNodes, of_any_machine_change_no_bit_of_training) {
  const ModelSpec model = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  const ReferenceOptions reference{.micro_batches = 2, .steps = 4, .max_norm = 0.05};
  const RunRecord expected = train_reference(model, reference);
  for (const char* machine : {"numa:2 core:2 pu:1", "numa:4 core:1 pu:2", "core:2 pu:1"}) {
    for (const HomeKind state : {HomeKind::kHost, HomeKind::kNvme}) {
      const TempFolder folder;
      Touched touched;
      EngineOptions options = engine_options(folder, reference);
      options.update_threads = 0;
      options.make_topology = [&] { return std::make_unique<BindingTopology>(machine, touched); };
      options.node_near_device = [](DeviceKind) { return 1; };
      options.plan.placement.state = {{state, 1}};
      Engine engine(model, options, toy_source());
      EXPECT_EQ(train_engine(engine, model, reference), expected) << machine;
      if (machine[0] == 'c') {
        EXPECT_TRUE(touched.bound_bytes.empty()) << "one node: nothing to choose";
        EXPECT_TRUE(touched.kept_on.empty());
      }
    }
  }
}

TEST(UpdateNodes, know_every_update_of_all_units_that_a_plan_has) {
  const ModelSpec model = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder;
  EngineOptions options = engine_options(folder, ReferenceOptions{});
  options.plan.placement.state = {{HomeKind::kNvme, 1}};
  const std::vector<TeamGroup> groups = {{.threads = 1}, {.threads = 1}};
  for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    options.plan.update = mode;
    const Plan plan = make_plan(model, options.plan);
    std::vector<UnitProgram> units;
    for (const UnitKind kind : unit_kinds(plan)) units.push_back(build_unit(model, plan, kind));
    const UpdateNodes nodes(update_ranges(plan, units), groups);
    size_t updates = 0;
    for (const UnitProgram& unit : units) {
      updates += unit.updates.size();
      for (const UpdateOperands& update : unit.updates) {
        EXPECT_NE(nodes.group_at(update.state), UpdateTeam::kAnyGroup) << name_of(mode);
      }
    }
    EXPECT_GE(updates, plan.chunks.size());
  }
}

TEST(UpdateNodes, keep_both_slots_of_a_chunk_with_the_same_threads) {
  const ModelSpec model = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder;
  EngineOptions options = engine_options(folder, ReferenceOptions{});
  options.plan.placement.state = options.plan.placement.weights = {{HomeKind::kHost, 1}};
  options.plan.update = UpdateMode::kAuto;
  options.plan.speculated_share = 0.6;
  options.plan.commit_interval = 10;
  Plan plan = make_plan(model, options.plan);
  std::vector<UnitProgram> units;
  for (int place = 0; place < 2; ++place, plan.move_to_other_slots()) {
    for (const UnitKind kind : unit_kinds(plan)) units.push_back(build_unit(model, plan, kind));
  }
  const std::vector<TeamGroup> groups = {{.threads = 1}, {.threads = 1}};
  const UpdateNodes nodes(update_ranges(plan, units), groups);
  int64_t bytes[2] = {}, moving = 0;
  for (int c = 0; c < std::ssize(plan.chunks); ++c) {
    const ChunkHomes& homes = plan.chunks[c];
    const int group = nodes.group_at(homes.state_offset);
    ASSERT_TRUE(group == 0 || group == 1);
    EXPECT_EQ(nodes.group_at(homes.weights_offset), group) << c;
    bytes[group] += plan.record_bytes(c, Group::kState);
    if (!plan.has_other_slot(c)) continue;
    ++moving;
    EXPECT_EQ(nodes.group_at(plan.other_slots[c].state), group) << c;
    EXPECT_EQ(nodes.group_at(plan.other_slots[c].weights), group) << c;
  }
  EXPECT_GT(moving, 0);
  EXPECT_GT(std::min(bytes[0], bytes[1]), 0);
}

// How many updates of a plan there are of each kind, whose ranges must be what they say.
struct UpdatesOf {
  int on_device = 0, with_gradient = 0, without = 0, moving = 0;
};
void expect_range(const Plan& plan, const UpdateOperands& update, const UpdateRanges& range, UpdatesOf& count) {
  EXPECT_EQ(range.state.offset, update.state);
  EXPECT_EQ(range.state.bytes, plan.record_bytes(update.chunk, Group::kState));
  EXPECT_EQ(range.weights.offset, update.weights);
  EXPECT_EQ(range.weights.bytes, plan.record_bytes(update.chunk, Group::kWeights));
  const bool at_home = plan.chunks[update.chunk].gradient == Home::kHost;
  EXPECT_EQ(range.gradient.bytes, at_home ? plan.gradient_bytes(plan.geometry.chunks()[update.chunk].elements) : 0);
  if (at_home) {
    EXPECT_EQ(range.gradient.offset, update.gradient);
  }
  ++(at_home ? count.with_gradient : count.without);
  const bool moves = plan.has_other_slot(update.chunk);
  EXPECT_EQ(range.other_state.bytes, moves ? range.state.bytes : 0);
  EXPECT_EQ(range.other_weights.bytes, moves ? range.weights.bytes : 0);
  if (!moves) return;
  EXPECT_EQ(range.other_state.offset, plan.other_slots[update.chunk].state);
  EXPECT_EQ(range.other_weights.offset, plan.other_slots[update.chunk].weights);
  ++count.moving;
}

TEST(UpdateNodes, know_the_ranges_of_updates_in_host_memory_and_of_gradients_at_home_there) {
  const ModelSpec model = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder;
  EngineOptions options = engine_options(folder, ReferenceOptions{});
  options.plan.speculated_share = 0.6;
  options.plan.commit_interval = 10;
  UpdatesOf count;
  using enum HomeKind;
  const Placement in_host{.weights = {{kHost, 1}}, .state = {{kHost, 1}}, .gradient = {{kHost, 0.5}, {kNvme, 0.5}}};
  const Placement half_on_device{.state = {{kHost, 0.5}, {kDevice, 0.5}}};
  for (const Placement& placement : {in_host, half_on_device}) {
    options.plan.placement = placement;
    const Plan plan = make_plan(model, options.plan);
    for (const UnitKind kind : unit_kinds(plan)) {
      const UnitProgram unit = build_unit(model, plan, kind);
      const std::vector<UpdateRanges> all = update_ranges(plan, {&unit, 1});
      auto range = all.begin();
      for (const UpdateOperands& update : unit.updates) {
        if (update.place == Place::kDevice) {
          ++count.on_device;
          continue;
        }
        ASSERT_NE(range, all.end());
        expect_range(plan, update, *range++, count);
      }
      EXPECT_EQ(range, all.end());
    }
  }
  EXPECT_GT(std::min({count.on_device, count.with_gradient, count.without, count.moving}), 0);
}

class LargeArena : public ::testing::Test {
 protected:
  // An arena of many pages of 2 MiB on a machine of two nodes.
  explicit LargeArena() {
    options_.plan.device_bytes = options_.plan.host_bytes = 256 * kMiB;
    options_.plan.chunk_elements = 1 << 17;
    options_.plan.placement.state = {{HomeKind::kHost, 1}};
    options_.make_topology = [&] { return std::make_unique<BindingTopology>("numa:2 core:2 pu:1", touched_); };
    options_.update_threads = 0;
  }
  int64_t host_bytes() const { return Engine(model_, options_, toy_source()).plan().host_arena_bytes; }

  const ModelSpec model_ = toy_model({.visits = 5, .shape = ToyShape::kBoth, .elements = 1'000'000}, Precision::kBf16);
  TempFolder folder_;
  Touched touched_;
  EngineOptions options_ = engine_options(folder_, ReferenceOptions{});
};

TEST_F(LargeArena, lies_with_the_updates_on_every_node) {
  const int64_t all = host_bytes();
  ASSERT_EQ(touched_.bound_bytes.size(), 2u);
  const int64_t both = touched_.bound_bytes[0] + touched_.bound_bytes[1];
  EXPECT_LE(both, all);
  EXPECT_GT(both, all / 2);
  EXPECT_GT(touched_.bound_bytes[0], both / 4);
  EXPECT_GT(touched_.bound_bytes[1], both / 4);
  EXPECT_TRUE(touched_.kept_on.empty());
}

TEST_F(LargeArena, lies_near_the_device_where_no_update_touches_it_and_so_do_the_threads_that_serve_it) {
  options_.update_threads = 1;
  const int updating = team_groups(*make_topology_synthetic("numa:2 core:2 pu:1"), 1).at(0).node, near = 1 - updating;
  options_.node_near_device = [near](DeviceKind kind) { return kind == DeviceKind::kHost ? near : -1; };
  const int64_t all = host_bytes();
  EXPECT_GT(touched_.bound_bytes[updating], all / 2);
  EXPECT_GT(touched_.bound_bytes[near], 0);
  EXPECT_EQ(touched_.bound_bytes[updating] + touched_.bound_bytes[near], all);
  constexpr int kEvery = Topology::kEveryNode;
  EXPECT_EQ(touched_.kept_on, (std::vector<int>{near, kEvery, near, kEvery})) << "asked for once, then stayed there";
}

TEST_F(LargeArena, is_as_without_a_device_where_nothing_is_near_it) {
  options_.node_near_device = [](DeviceKind) { return 7; };
  host_bytes();
  EXPECT_TRUE(touched_.kept_on.empty());
}

// An engine on a machine of two nodes, of which the second is near the device.
class NearTheDevice : public ::testing::Test {
 protected:
  static constexpr int kEvery = Topology::kEveryNode, kNear = 1;

  NearTheDevice() {
    options_.make_topology = [&] { return std::make_unique<BindingTopology>("numa:2 core:2 pu:1", touched_); };
    options_.node_near_device = [](DeviceKind) { return kNear; };
  }
  // The nodes that turns have run on.
  std::set<int> where(const std::function<void(Engine&, const Compute&)>& run) {
    Engine engine(model_, options_, toy_source());
    touched_.now_on = placed_;
    std::set<int> nodes;
    const int64_t step = 1;
    const Compute compute = toy_compute(model_, step);
    run(engine, [&](Use& use) {
      nodes.insert(touched_.now_on);
      compute(use);
    });
    return nodes;
  }

  const ModelSpec model_ = toy_model({.visits = 3, .shape = ToyShape::kBoth}, Precision::kBf16);
  TempFolder folder_;
  Touched touched_;
  EngineOptions options_ = engine_options(folder_, ReferenceOptions{});
  int placed_ = kEvery;  // where the caller's thread is before
};

TEST_F(NearTheDevice, runs_the_callers_thread_while_the_engine_does_and_it_is_let_go_afterwards) {
  const auto runs = std::vector<std::function<void(Engine&, const Compute&)>>{
      [](Engine& engine, const Compute& compute) { engine.train_step(1e-3, compute); },
      [](Engine& engine, const Compute& compute) { engine.evaluate(1, compute); },
      [](Engine& engine, const Compute& compute) { engine.replay(LaneGroup::kCompute, compute); },
  };
  for (const auto& run : runs) {
    options_.open = OpenMode::kOverwrite;
    EXPECT_EQ(where(run), std::set<int>{kNear});
    EXPECT_EQ(touched_.now_on, kEvery);
  }
}

TEST_F(NearTheDevice, lets_the_callers_thread_go_where_compute_throws) {
  const auto fail = [](Engine& engine, const Compute&) {
    EXPECT_THROW(engine.train_step(1e-3, [](Use&) { throw std::runtime_error("compute"); }), std::runtime_error);
  };
  where(fail);
  EXPECT_EQ(touched_.kept_on, (std::vector<int>{kNear, kEvery, kNear, kEvery, kNear, kEvery}));
}

TEST_F(NearTheDevice, leaves_a_thread_alone_that_its_owner_has_placed) {
  placed_ = 0;
  EXPECT_EQ(where([](Engine& engine, const Compute& compute) { engine.train_step(1e-3, compute); }), std::set<int>{0});
  EXPECT_EQ(touched_.now_on, 0);
}

TEST_F(NearTheDevice, leaves_threads_alone_where_no_node_is_nearest) {
  options_.node_near_device = [](DeviceKind) { return -1; };
  EXPECT_EQ(where([](Engine& engine, const Compute& compute) { engine.train_step(1e-3, compute); }),
            std::set<int>{kEvery});
  EXPECT_TRUE(touched_.kept_on.empty());
}

}  // namespace
}  // namespace sluice::testing
