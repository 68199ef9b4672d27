// One contract, every twin of the update team.
#include "cpu_adam/update_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <barrier>
#include <bit>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "core/errors.h"
#include "cpu_adam/task_fifo.h"
#include "tests/fakes/counting_new.h"
#include "tests/fakes/few_threads.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/odd_arithmetic.h"

namespace sluice {
namespace {

thread_local int pinned_cpu = -1;

// A machine of NUMA nodes with made-up CPUs; pinning is written down instead of done.
class MadeUpTopology final : public Topology {
 public:
  explicit MadeUpTopology(std::vector<std::vector<int>> nodes) : nodes_(std::move(nodes)) {}
  std::string describe() const override { return "made up"; }
  int node_count() const override { return static_cast<int>(nodes_.size()); }
  std::vector<int> cpus_of_node(int node) const override { return nodes_[static_cast<size_t>(node)]; }
  int core_count() const override {
    size_t cores = 0;
    for (const auto& node : nodes_) cores += node.size();
    return static_cast<int>(cores);
  }
  bool pin_this_thread(int cpu) const noexcept override {
    pinned_cpu = cpu;
    return true;
  }
  bool keep_this_thread_on(int /*node*/) const noexcept override { return true; }
  bool bind_memory(std::span<std::byte> /*pages*/, int /*node*/) const noexcept override { return true; }
  std::string cpu_name() const override { return "made up"; }

 private:
  std::vector<std::vector<int>> nodes_;
};

using Maker = std::unique_ptr<UpdateTeam> (*)(const Topology&, int threads);
struct Twin {
  const char* name;
  Maker make;
};
class UpdateTeamTwin : public testing::TestWithParam<Twin> {
 protected:
  std::unique_ptr<UpdateTeam> make(int threads) { return GetParam().make(topology_, threads); }
  MadeUpTopology topology_{{{0, 1}}};
};
INSTANTIATE_TEST_SUITE_P(Teams, UpdateTeamTwin,
                         testing::Values(Twin{"built_default", make_update_team}, Twin{"std", make_update_team_std}),
                         [](const auto& twin) { return std::string(twin.param.name); });

TEST_P(UpdateTeamTwin, runs_every_task_once_before_its_destructor_ends) {
  for (const int threads : {1, 2, 3}) {
    std::vector<std::atomic<int>> runs(5'000);
    {
      auto team = make(threads);
      EXPECT_EQ(team->threads(), threads);
      for (int i = 0; i < static_cast<int>(runs.size()); ++i) {
        team->start(
            {.run = [](void* context, int index) { ++(*static_cast<std::vector<std::atomic<int>>*>(context))[index]; },
             .context = &runs,
             .index = i});
      }
    }
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST_P(UpdateTeamTwin, starts_tasks_in_the_order_of_calls) {
  std::vector<int> order;
  {
    auto team = make(1);
    for (int i = 0; i < 3'000; ++i) {
      team->start({.run = [](void* context, int index) { static_cast<std::vector<int>*>(context)->push_back(index); },
                   .context = &order,
                   .index = i});
    }
  }
  ASSERT_EQ(order.size(), 3'000u);
  for (int i = 0; i < 3'000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

// Each task waits for all the others: fewer than three at once would never end.
TEST_P(UpdateTeamTwin, runs_as_many_tasks_at_once_as_it_has_threads) {
  std::barrier<> meeting(3);
  auto team = make(3);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) {
      team->start({.run = [](void* context, int) { static_cast<std::barrier<>*>(context)->arrive_and_wait(); },
                   .context = &meeting});
    }
  }
}

TEST_P(UpdateTeamTwin, runs_as_many_tasks_at_once_beside_a_smaller_team) {
  std::barrier<> meeting(4);
  const auto smaller = make(1);
  auto team = make(4);
  for (int i = 0; i < 4; ++i) {
    team->start({.run = [](void* context, int) { static_cast<std::barrier<>*>(context)->arrive_and_wait(); },
                 .context = &meeting});
  }
}

TEST_P(UpdateTeamTwin, makes_the_caller_of_a_full_queue_wait) {
  std::atomic<int> begun{0};
  int most_waiting = 0;
  auto team = make(2);
  for (int i = 1; i <= 20'000; ++i) {
    team->start({.run = [](void* context, int) { ++*static_cast<std::atomic<int>*>(context); }, .context = &begun});
    most_waiting = std::max(most_waiting, i - begun);
  }
  EXPECT_LE(most_waiting, kTaskFifoSlots + team->threads());
}

TEST_P(UpdateTeamTwin, wakes_up_for_a_task_after_being_idle) {
  std::atomic<int> done{0};
  auto team = make(2);
  for (int i = 0; i < 200; ++i) {
    team->start({.run =
                     [](void* context, int) {
                       auto& count = *static_cast<std::atomic<int>*>(context);
                       ++count;
                       count.notify_one();
                     },
                 .context = &done});
    done.wait(i);
  }
  EXPECT_EQ(done, 200);
}

TEST_P(UpdateTeamTwin, allocates_nothing_when_it_starts_a_task) {
  std::atomic<int> ran{0};
  auto team = make(2);
  const auto start_many = [&] {
    for (int i = 0; i < 2'000; ++i) {
      team->start({.run = [](void* context, int) { ++*static_cast<std::atomic<int>*>(context); }, .context = &ran});
    }
  };
  start_many();
  const int64_t before = heap_allocations_of_this_thread();
  start_many();
  EXPECT_EQ(heap_allocations_of_this_thread(), before);
}

struct Pinned {
  std::barrier<> meeting{4};
  std::mutex mutex;
  std::multiset<int> cpus;
};

TEST_P(UpdateTeamTwin, pins_each_thread_to_a_cpu_of_its_own_on_every_node) {
  const MadeUpTopology two_nodes({{10, 11}, {20, 21}});
  Pinned pinned;
  {
    auto team = GetParam().make(two_nodes, 4);
    for (int i = 0; i < 4; ++i) {
      team->start({.run =
                       [](void* context, int) {
                         auto& shared = *static_cast<Pinned*>(context);
                         shared.meeting.arrive_and_wait();
                         const std::lock_guard lock(shared.mutex);
                         shared.cpus.insert(pinned_cpu);
                       },
                   .context = &pinned});
    }
  }
  EXPECT_EQ(pinned.cpus, (std::multiset<int>{10, 11, 20, 21}));
}

struct Ran {
  std::mutex mutex;
  std::vector<std::pair<int, int>> cpu_and_index;
};
void write_down(void* context, int index) {
  auto& ran = *static_cast<Ran*>(context);
  const std::lock_guard lock(ran.mutex);
  ran.cpu_and_index.emplace_back(pinned_cpu, index);
}

TEST_P(UpdateTeamTwin, runs_a_groups_tasks_on_its_nodes_threads_alone_and_in_order) {
  const MadeUpTopology three_nodes({{10}, {20}, {30}});
  Ran ran;
  {
    auto team = GetParam().make(three_nodes, 3);
    for (int i = 0; i < 3'000; ++i)
      team->start({.run = write_down, .context = &ran, .index = i, .group = i % 7 < 5 ? 2 : i % 2});
  }
  ASSERT_EQ(ran.cpu_and_index.size(), 3'000u);
  std::map<int, int> last;
  for (const auto& [cpu, index] : ran.cpu_and_index) {
    EXPECT_EQ(cpu, 10 * (index % 7 < 5 ? 3 : index % 2 + 1));
    EXPECT_LT(last.emplace(cpu, -1).first->second, index);
    last[cpu] = index;
  }
}

// The first task of a group lasts until all others have run: nobody waits behind it but its own group.
TEST_P(UpdateTeamTwin, keeps_no_group_waiting_for_another) {
  const MadeUpTopology two_nodes({{10}, {20}});
  struct Shared {
    std::atomic<int> ran{0};
    int others = 2'000;
  } shared;
  auto team = GetParam().make(two_nodes, 2);
  team->start({.run =
                   [](void* context, int) {
                     auto& all = *static_cast<Shared*>(context);
                     for (int ran = all.ran; ran < all.others; ran = all.ran) all.ran.wait(ran);
                   },
               .context = &shared,
               .group = 0});
  for (int i = 0; i < shared.others; ++i) {
    team->start({.run =
                     [](void* context, int) {
                       auto& all = *static_cast<Shared*>(context);
                       ++all.ran;
                       all.ran.notify_one();
                     },
                 .context = &shared,
                 .group = i % 3 == 0 ? UpdateTeam::kAnyGroup : 1});
  }
}

// One that woke a thread of another group alone would never end.
TEST_P(UpdateTeamTwin, wakes_up_a_groups_own_threads_for_a_task_after_being_idle) {
  const MadeUpTopology three_nodes({{10}, {20}, {30}});
  std::atomic<int> done{0};
  auto team = GetParam().make(three_nodes, 3);
  for (int i = 0; i < 1'000; ++i) {
    team->start({.run =
                     [](void* context, int) {
                       auto& count = *static_cast<std::atomic<int>*>(context);
                       ++count;
                       count.notify_one();
                     },
                 .context = &done,
                 .group = 2});
    done.wait(i);
  }
  EXPECT_EQ(done, 1'000);
}

TEST_P(UpdateTeamTwin, has_a_thread_a_physical_core_unless_told) {
  const MadeUpTopology machine({{0, 1}, {2}});
  const auto team = GetParam().make(machine, 0);
  EXPECT_EQ(team->threads(), 3);
  EXPECT_NE(team->describe().find("threads: 3, NUMA nodes: 2"), std::string::npos) << team->describe();
}

TEST_P(UpdateTeamTwin, computes_by_ieee_arithmetic_whatever_its_maker_has) {
  std::atomic<int> ieee{0};
  {
    const OddArithmetic odd;
    auto team = make(2);
    for (int i = 0; i < 20; ++i) {
      team->start(
          {.run = [](void* context, int) { *static_cast<std::atomic<int>*>(context) += arithmetic_is_ieee() ? 1 : 0; },
           .context = &ieee});
    }
  }
  EXPECT_EQ(ieee, 20);
}

// Its threads may be the process's, and outlive it.
TEST_P(UpdateTeamTwin, leaves_no_thread_pinned_behind) {
  const auto machine = make_topology();
  if (machine->cpus_of_node(0).size() < 2) GTEST_SKIP() << "this process has one CPU";
  const auto here = machine->cpus_of_this_thread();
  {
    std::barrier<> meeting(2);
    auto team = GetParam().make(*machine, 2);
    for (int i = 0; i < 2; ++i) {
      team->start({.run = [](void* context, int) { static_cast<std::barrier<>*>(context)->arrive_and_wait(); },
                   .context = &meeting});
    }
  }
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    cpu_set_t cpus;
    if (sched_getaffinity(std::stoi(thread.path().filename()), sizeof cpus, &cpus) != 0) continue;  // it has ended
    EXPECT_EQ(std::bit_cast<ThreadCpus>(cpus), here) << thread.path();
  }
}

TEST_F(FewThreads, end_with_the_team_that_could_not_have_all_it_asked_for) {
  run_with_threads(3, [] {
    const MadeUpTopology machine({{0, 1, 2, 3, 4}});
    EXPECT_THAT(
        message_of<IoError>([&] { make_update_team_std(machine, 5); }),
        testing::AllOf(testing::HasSubstr("start of a thread for the update failed"), testing::HasSubstr("ulimit -u")));
  });
}

// Oldest first, but for those of other groups, which keep their places.
TEST(TaskFifo, gives_each_group_its_tasks_in_order_and_those_of_any_group_to_whoever_asks_first) {
  TaskFifo fifo;
  const auto next = [&](int group) {
    const std::optional<UpdateTeam::Task> task = fifo.pop(group);
    return task ? task->index : -1;
  };
  int index = 0;
  for (const int group : {0, 1, UpdateTeam::kAnyGroup, 1, 0})
    fifo.push({.run = [](void*, int) {}, .index = index++, .group = group});
  EXPECT_EQ(next(1), 1);
  EXPECT_EQ(next(1), 2);
  EXPECT_EQ(next(0), 0);
  EXPECT_EQ(next(0), 4);
  EXPECT_FALSE(fifo.has_task_for(0));
  EXPECT_EQ(next(0), -1);
  EXPECT_TRUE(fifo.has_task_for(1));
  EXPECT_EQ(next(1), 3);
  EXPECT_TRUE(fifo.empty());
}

TEST(TaskFifo, has_room_again_for_all_that_was_taken_out_of_turn_once_the_task_before_it_goes) {
  TaskFifo fifo;
  const auto push = [&](int group) { fifo.push({.run = [](void*, int) {}, .group = group}); };
  push(0);
  for (int i = 1; i < kTaskFifoSlots; ++i) push(1);
  for (int i = 1; i < kTaskFifoSlots; ++i) ASSERT_TRUE(fifo.pop(1));
  EXPECT_TRUE(fifo.full()) << "its oldest task is there";
  ASSERT_TRUE(fifo.pop(0));
  EXPECT_TRUE(fifo.empty());
  for (int i = 0; i < kTaskFifoSlots; ++i) {
    ASSERT_FALSE(fifo.full()) << i;
    push(1);
  }
  EXPECT_TRUE(fifo.full());
}

TEST(TeamPlan, shares_threads_out_in_proportion_to_cpus_and_wraps_around) {
  using Plan = std::vector<TeamCpus>;
  EXPECT_EQ(cpus_of_team(MadeUpTopology({{0, 1, 2, 3}, {4, 5}}), 3), (Plan{{0, {0, 1}}, {1, {4}}}));
  EXPECT_EQ(cpus_of_team(MadeUpTopology({{0, 1}, {}}), 3), (Plan{{0, {0, 1, 0}}}));
  EXPECT_EQ(cpus_of_team(MadeUpTopology({{0}, {1}}), 1), (Plan{{1, {1}}}));
  EXPECT_EQ(cpus_of_team(MadeUpTopology(std::vector<std::vector<int>>(1)), 2), (Plan{{0, {-1, -1}}}));
  EXPECT_EQ(cpus_of_team(MadeUpTopology(std::vector<std::vector<int>>(1)), 0), (Plan{{0, {-1}}}));
}

TEST(TeamPlan, names_a_groups_node_where_nodes_without_cpus_have_no_group) {
  const std::vector<TeamGroup> groups = team_groups(MadeUpTopology({{}, {0, 1}, {}, {2}}), 3);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].node, 1);
  EXPECT_EQ(groups[0].threads, 2);
  EXPECT_EQ(groups[1].node, 3);
  EXPECT_EQ(groups[1].threads, 1);
}

TEST(TeamPlan, has_a_thread_a_core_of_every_node_whatever_the_machine) {
  using Plan = std::vector<TeamCpus>;
  const auto plan = [](const char* machine, std::vector<int> allowed, int threads) {
    return cpus_of_team(*make_topology_synthetic(machine, allowed), threads);
  };
  EXPECT_EQ(plan("numa:2 core:2 pu:2", {}, 0), (Plan{{0, {0, 2}}, {1, {4, 6}}}));
  EXPECT_EQ(plan("numa:2 core:2 pu:2", {}, 8), (Plan{{0, {0, 2, 1, 3}}, {1, {4, 6, 5, 7}}}));
  EXPECT_EQ(plan("numa:4 core:2 pu:1", {}, 0), (Plan{{0, {0, 1}}, {1, {2, 3}}, {2, {4, 5}}, {3, {6, 7}}}));
  EXPECT_EQ(plan("numa:4 core:2 pu:1", {}, 3), (Plan{{1, {2}}, {2, {4}}, {3, {6}}}));
  EXPECT_EQ(plan("numa:2 core:4 pu:2", {3, 10, 11}, 0), (Plan{{0, {3}}, {1, {10}}}));
  EXPECT_EQ(plan("core:1 pu:2", {}, 0), (Plan{{0, {0}}}));
}

}  // namespace
}  // namespace sluice
