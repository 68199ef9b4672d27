// Plans that choose the commit interval and which updates are early.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/few_pieces.h"
#include "engine/predict.h"
#include "tests/engine/homes_fixture.h"
#include "tests/engine/machines.h"

namespace sluice::testing {
namespace {

class Commits : public Homes {
 protected:
  PlanOptions options() const {
    PlanOptions wish = Homes::options(1);
    wish.commit_interval = 0;
    wish.update = UpdateMode::kAuto;
    wish.host_bytes = 16 * kMiB;
    MachineSpeeds& machine = wish.speeds->machine;
    machine = machine_of(1);
    machine.update_ns_per_element = 0.1;
    machine.checksum_gb_per_s = machine.close_gb_per_s = 10;
    machine.update_threads = 2;
    machine.cores = 2;
    return wish;
  }
};

TEST_F(Commits, cost_in_prices_what_those_cost_that_are_as_far_apart_as_is_asked) {
  PlanOptions wish = options();
  wish.speeds->machine.checksum_gb_per_s = 0.01;
  const HomePrices every = price_homes(model_, wish, 1), rarely = price_homes(model_, wish, 10);
  wish.commit_interval = 10;
  EXPECT_EQ(price_homes(model_, wish, 1).rest_ms, every.rest_ms);
  wish.commit_interval = 1;
  const HomePrices same = price_homes(model_, wish, 10);
  EXPECT_EQ(same.rest_ms, rarely.rest_ms);
  const auto update_ms = [](const HomePrices& prices) {  // of state in host memory
    return prices.of(Group::kState).items[0][1][static_cast<size_t>(Lane::kUpdate)];
  };
  EXPECT_EQ(update_ms(same), update_ms(rarely));
  EXPECT_LT(update_ms(rarely), update_ms(every));
}

TEST_F(Commits, come_in_every_step_where_state_is_on_nvme_whatever_a_flush_takes) {
  PlanOptions wish = options();
  wish.placement.state = {{HomeKind::kNvme, 1}};
  wish.speeds->machine.commit_ms = 1000;
  EXPECT_EQ(make_plan(model_, wish).commit_interval, 1);
  wish.commit_interval = 3;
  EXPECT_EQ(make_plan(model_, wish).commit_interval, 3);
}

TEST_F(Commits, auto_takes_the_shorter_interval_for_its_early_updates) {
  PlanOptions wish = options();
  wish.placement.state = {{HomeKind::kHost, 1}};
  EXPECT_EQ(make_plan(model_, wish).commit_interval, kCommitRarely);
  // The update is all there is beside the compute, nearly all of which is in the backward; and host memory has no room
  // for a second slot, which early updates between rare commits need.
  wish.speeds->machine.update_ns_per_element = 10000;
  wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = 0.1, .backward_ms = 60});
  wish.host_bytes = Planner(model_, wish).smallest_host(wish.device_bytes).value() + 32 * kKiB;
  const Plan plan = make_plan(model_, wish);
  EXPECT_EQ(plan.commit_interval, 1);
  EXPECT_TRUE(plan.any_speculated());
  EXPECT_TRUE(plan.other_slots.empty());
}

TEST_F(Commits, are_rare_beside_early_updates_where_host_memory_has_room_for_second_slots) {
  PlanOptions wish = options();
  wish.placement.state = wish.placement.weights = {{HomeKind::kHost, 1}};
  wish.speeds->machine.update_ns_per_element = 1000;
  wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = 2, .backward_ms = 6});
  set_drives(wish.speeds->machine, 0.01);  // to write all state in every step would take longer than all else
  const Plan plan = make_plan(model_, wish);
  EXPECT_GE(plan.commit_interval, kCommitRarely);
  EXPECT_TRUE(plan.any_speculated());
  const auto slots = std::ranges::find(plan.uses, "second slots of early updates", &UseRow::use);
  ASSERT_NE(slots, plan.uses.end());
  EXPECT_GT(slots->bytes, 0);
  int64_t host_bytes = 0;
  for (const UseRow& row : plan.uses) host_bytes += row.tier == Tier::kHost ? row.bytes : 0;
  EXPECT_LE(host_bytes, wish.host_bytes);
  wish.update = UpdateMode::kDeferred;
  EXPECT_LT(predict(model_, plan, *wish.speeds).step_ms,
            0.85 * predict(model_, make_plan(model_, wish), *wish.speeds).step_ms);
}

// Half of the state is at home in host memory: to write it in every step is most of what the drive does.
TEST_F(Commits, auto_commits_rarely_where_that_spares_the_drive_what_is_at_home_in_host_memory) {
  PlanOptions wish = options();
  wish.placement.state = {{HomeKind::kHost, 0.9}, {HomeKind::kNvme, 0.1}};
  wish.placement.weights = {{HomeKind::kHost, 1}};
  set_drives(wish.speeds->machine, 0.01);
  const Plan plan = make_plan(model_, wish);
  EXPECT_GE(plan.commit_interval, kCommitRarely);
  wish.commit_interval = 1;
  EXPECT_LT(predict(model_, plan, *wish.speeds).step_ms,
            predict(model_, make_plan(model_, wish), *wish.speeds).step_ms);
  wish.commit_interval = 0;
  wish.update = UpdateMode::kSpeculative;  // which needs a commit in every step
  EXPECT_EQ(make_plan(model_, wish).commit_interval, 1);
  wish.update = UpdateMode::kAuto;
  set_drives(wish.speeds->machine, 1000);  // nothing to be won: a crash would lose more
  EXPECT_EQ(make_plan(model_, wish).commit_interval, 1);
}

// What a crash loses is worth 5 % of a step's time, and not less.
TEST_F(Commits, auto_commits_rarely_where_that_spares_5_percent_of_a_step_and_not_for_less) {
  PlanOptions wish = options();
  wish.placement.state = {{HomeKind::kHost, 0.9}, {HomeKind::kNvme, 0.1}};
  wish.placement.weights = {{HomeKind::kHost, 1}};
  set_drives(wish.speeds->machine, 0.01);
  int too_little = 0, enough = 0;
  for (double compute_ms = 1; compute_ms < 20; compute_ms *= 1.02) {
    wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = compute_ms / 4, .backward_ms = compute_ms});
    const auto step_ms = [&](int interval) {
      PlanOptions with = wish;
      with.commit_interval = interval;
      return predict(model_, make_plan(model_, with), *wish.speeds).step_ms;
    };
    const double ratio = step_ms(kCommitRarely) / step_ms(1);
    const Plan plan = make_plan(model_, wish);
    const int taken = plan.commit_interval;
    ASSERT_TRUE(plan.other_commits);
    EXPECT_EQ(plan.other_commits->interval == 1, taken > 1);
    EXPECT_LT(std::abs(plan.other_commits->step_ms / step_ms(plan.other_commits->interval) - 1), 0.02) << compute_ms;
    EXPECT_THAT(plan.table(), ::testing::HasSubstr(taken > 1 ? "; every step: " : " steps; every "));
    if (ratio > 0.96 && ratio < 0.99) {
      ++too_little;
      EXPECT_EQ(taken, 1) << ratio;
    } else if (ratio < 0.94) {
      ++enough;
      EXPECT_GT(taken, 1) << ratio;
    }
  }
  EXPECT_GT(too_little, 0);
  EXPECT_GT(enough, 0);
}

// But for what `auto` gives up so that a crash loses less: 5 % of a step for a commit in every step, 3 % among rarer
// ones. A search that goes from one change to the next finds the shortest step most often, and one near it always.
TEST_F(Commits, auto_is_about_as_fast_as_the_interval_with_which_steps_are_shortest) {
  int slower = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    PlanOptions wish = options();
    wish.update = seed % 2 == 0 ? UpdateMode::kDeferred : UpdateMode::kAuto;
    wish.clips = false;
    wish.speeds = random_speeds(model_, seed);
    wish.speeds->machine.commit_ms = 4.0 * static_cast<double>(seed % 5);
    make_scarce(wish, seed);
    const auto step_ms = [&](int interval) {
      wish.commit_interval = interval;
      const std::optional<Plan> plan = find_plan(model_, wish);
      return plan ? predict(model_, *plan, *wish.speeds).step_ms : std::numeric_limits<double>::infinity();
    };
    const double shortest_ms = std::min({step_ms(1), step_ms(kCommitRarely), step_ms(50), step_ms(200)});
    const double auto_ms = step_ms(0);
    slower += auto_ms > 1.065 * shortest_ms ? 1 : 0;
    EXPECT_LT(auto_ms, 1.2 * shortest_ms) << seed;
  }
  EXPECT_LE(slower, 2);
}

// Commits whose flush takes the drive as long as some steps.
TEST_F(Commits, auto_commits_as_rarely_as_keeps_them_a_small_part_of_the_time_and_a_crash_from_losing_a_minute) {
  PlanOptions wish = options();
  wish.placement.state = wish.placement.weights = {{HomeKind::kHost, 1}};
  const auto plan_of_steps = [&](double ms, double commit_in_steps) {
    const double unit = ms / (4 * static_cast<double>(model_.visits.size()));
    wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = unit, .backward_ms = 3 * unit});
    wish.speeds->machine.commit_ms = commit_in_steps * ms;
    return make_plan(model_, wish);
  };
  EXPECT_EQ(plan_of_steps(100, 1).commit_interval, kCommitRarely) << "hidden beside the next step";
  EXPECT_EQ(plan_of_steps(100, 2).commit_interval, 50);
  EXPECT_EQ(plan_of_steps(100, 3.5).commit_interval, 100);
  EXPECT_EQ(plan_of_steps(10, 12).commit_interval, 500);
  EXPECT_EQ(plan_of_steps(100, 16).commit_interval, 500) << "a minute is 600 steps, of which 3 % are 18";
  EXPECT_EQ(plan_of_steps(100, 40).commit_interval, 500) << "more would lose more than a minute";
  EXPECT_EQ(plan_of_steps(100, 2000).commit_interval, 500) << "whatever one commit takes";
  EXPECT_EQ(plan_of_steps(2000, 4).commit_interval, 20);
  EXPECT_EQ(plan_of_steps(5000, 4).commit_interval, kCommitRarely) << "they lose a minute already";
  const double rarely_ms = predict(model_, plan_of_steps(100, 4), *wish.speeds).step_ms;
  wish.commit_interval = kCommitRarely;
  const Plan asked_for = plan_of_steps(100, 4);
  EXPECT_EQ(asked_for.commit_interval, kCommitRarely);
  EXPECT_LT(rarely_ms, 0.8 * predict(model_, asked_for, *wish.speeds).step_ms);
}

// Such a plan's like in few pieces chooses for it, and knows nothing of what each of many requests takes.
TEST_F(Commits, auto_commits_as_rarely_in_plans_of_many_pieces) {
  for (PartitionSpec& partition : model_.partitions) partition.parameters[0].shape = {32 * 1024};
  PlanOptions wish = options();
  wish.placement.state = wish.placement.weights = {{HomeKind::kHost, 1}};
  wish.host_bytes = 256 * kMiB;
  wish.chunk_elements = 128;
  wish.io_depth = 1;
  wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = 10, .backward_ms = 30});
  const FewPieces few = in_few_pieces(model_, wish);
  ASSERT_TRUE(few.fewer);
  int rarer = 0;
  for (const double transfer_us : {1, 100, 1000, 3000}) {
    wish.speeds->machine.transfer_us = transfer_us;
    PlanOptions like = few.options;
    like.speeds = wish.speeds;
    const Plan plan = make_plan(model_, wish);
    rarer += plan.commit_interval > make_plan(few.model, like).commit_interval ? 1 : 0;
    PlanOptions hardly = wish;
    hardly.commit_interval = 1'000'000;
    const double without_ms = predict(model_, make_plan(model_, hardly), *wish.speeds).step_ms;
    EXPECT_LE(predict(model_, plan, *wish.speeds).step_ms, 1.035 * without_ms) << transfer_us;
  }
  EXPECT_GT(rarer, 0);
}

// Weights at home on NVMe that are updated early are read once more.
TEST_F(Commits, auto_updates_nothing_early_where_that_is_predicted_to_be_clearly_shorter_and_speculative_always_does) {
  PlanOptions wish = options();
  wish.commit_interval = 1;
  wish.placement.state = wish.placement.weights = {{HomeKind::kNvme, 1}};
  wish.speeds->machine.read_gb_per_s = wish.speeds->machine.mixed_gb_per_s = 0.001;
  const auto step_ms = [&](UpdateMode update) {
    PlanOptions like = wish;
    like.update = update;
    const Plan plan = make_plan(model_, like);
    EXPECT_EQ(plan.any_speculated(), update == UpdateMode::kSpeculative);
    return predict(model_, plan, *wish.speeds, unclipped_kind(plan)).step_ms;
  };
  const auto with_forwards_of = [&](double ms) {
    wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = ms, .backward_ms = 0.001});
    return step_ms(UpdateMode::kDeferred) / step_ms(UpdateMode::kSpeculative);
  };
  EXPECT_LT(with_forwards_of(1), 0.9);
  EXPECT_FALSE(make_plan(model_, wish).any_speculated());
  const double nearly_as_long = with_forwards_of(1000);
  EXPECT_LT(nearly_as_long, 1);
  EXPECT_GT(nearly_as_long, 0.99);
  EXPECT_TRUE(make_plan(model_, wish).any_speculated());
}

}  // namespace
}  // namespace sluice::testing
