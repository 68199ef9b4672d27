// Which plan is taken: homes by speeds or in the fixed order, rings, the size of chunks.
#include "engine/plan_search.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/errors.h"
#include "engine/few_pieces.h"
#include "tests/engine/homes_fixture.h"
#include "tests/engine/machines.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Homes, a_step_is_never_predicted_to_take_longer_than_with_the_fixed_order_and_is_much_shorter_somewhere) {
  int shorter = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    PlanOptions wish = options(seed);
    make_scarce(wish, seed);
    wish.device_bytes += static_cast<int64_t>(seed % 4) * 64 * kKiB;
    const auto order = planned(wish);
    ASSERT_TRUE(order);
    const HomePrices prices = price_homes(model_, wish, 1);
    const auto elsewhere = planned(wish, {.prices = &prices, .state = StateToDevice::kWhereForced});
    ASSERT_TRUE(elsewhere);
    EXPECT_TRUE(std::ranges::none_of(elsewhere->chunks, &ChunkHomes::updated_on_device));
    const Plan taken = make_plan(model_, wish);
    const double order_ms = predict(model_, *order, *wish.speeds).step_ms;
    const double taken_ms = predict(model_, taken, *wish.speeds).step_ms;
    EXPECT_LE(taken_ms, order_ms) << "seed " << seed;
    if (elsewhere->homes_by == HomesBy::kSpeeds) {
      EXPECT_LE(taken_ms, predict(model_, *elsewhere, *wish.speeds).step_ms * 1.011) << "seed " << seed;
    }
    shorter += taken_ms < 0.9 * order_ms ? 1 : 0;
    ASSERT_TRUE(taken.busiest);
    EXPECT_EQ(taken.busiest->group, predict(model_, taken, *wish.speeds).binding);
    EXPECT_GE(taken.busiest->ms * (1 + 1e-9), std::ranges::max(times_of(taken)));  // more where rings make it wait
    EXPECT_EQ(taken.busiest->step_ms, taken_ms);
    const std::string words = taken.homes_words();
    EXPECT_NE(words.find(name_of(taken.busiest->group)), std::string::npos) << words;
    EXPECT_EQ(words.find("fixed order") == std::string::npos, taken.homes_by == HomesBy::kSpeeds) << words;
  }
  EXPECT_GT(shorter, 3);
}

// Of groups that may be anywhere: to name one home for all of one of them hardly ever finds what was overlooked.
TEST_F(Homes, that_are_named_for_a_whole_group_are_seldom_predicted_to_be_faster_than_those_found) {
  int named_by_search = 0, overlooked = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    PlanOptions wish = options(seed);
    make_scarce(wish, seed);
    wish.device_bytes += static_cast<int64_t>(seed % 4) * 64 * kKiB;
    wish.host_bytes += static_cast<int64_t>(seed % 3) * 64 * kKiB;
    const Plan found = make_plan(model_, wish);
    named_by_search += found.named.state.empty() && found.named.activations.empty() ? 0 : 1;
    const auto is_faster = [&](HomeShares Placement::*group, HomeKind home) {
      PlanOptions named = wish;
      named.placement.*group = {{home, 1}};
      const std::optional<Plan> plan = find_plan(model_, named);
      return plan && found.busiest->step_ms > 1.02 * plan->busiest->step_ms;
    };
    overlooked += is_faster(&Placement::state, HomeKind::kNvme) || is_faster(&Placement::state, HomeKind::kDevice) ||
                          is_faster(&Placement::activations, HomeKind::kHost) ||
                          is_faster(&Placement::activations, HomeKind::kDevice)
                      ? 1
                      : 0;
  }
  EXPECT_GT(named_by_search, 0);
  EXPECT_LE(overlooked, 4);
}

// What more memory is used for makes programs longer, and their tables may not fit the other memory. It is rare: of the
// first two hundred such models with forty budgets of either memory none is taken with less, of the 427th some are.
TEST_F(Homes, a_budget_is_never_refused_where_a_smaller_one_is_taken) {
  int taken_with_less = 0;
  for (const uint64_t seed : {3, 4, 5, 427}) {
    model_ = random_model(seed, Precision::kBf16);
    PlanOptions wish = options(seed);
    wish.speeds.reset();
    wish.update = UpdateMode::kAuto;
    wish.micro_batches = 1 + static_cast<int>(seed % 4);
    wish.chunk_elements = seed % 3 == 0 ? 0 : 128 << seed % 4;
    if (seed % 2) wish.graph_bytes.assign(model_.visits.size(), 1000);
    const Planner planner(model_, wish);
    for (const bool of_device : {true, false}) {
      int64_t& fixed = of_device ? wish.host_bytes : wish.device_bytes;
      int64_t& raised = of_device ? wish.device_bytes : wish.host_bytes;
      wish.device_bytes = 8 * kMiB;
      wish.host_bytes = 16 * kMiB;
      fixed = of_device ? planner.smallest_host(wish.device_bytes).value()
                        : planner.smallest_device(wish.host_bytes).value();
      raised = of_device ? planner.smallest_device(fixed).value() : planner.smallest_host(fixed).value();
      for (int times = 0; times < 40; ++times, raised += raised / 20) {
        if (!find_plan(model_, wish)) ++taken_with_less;
        const Plan plan = make_plan(model_, wish);
        EXPECT_EQ(plan.options.device_bytes, wish.device_bytes);
        EXPECT_EQ(plan.options.host_bytes, wish.host_bytes);
        ASSERT_LE(plan.device_arena_bytes, wish.device_bytes) << seed;
        ASSERT_LE(plan.host_arena_bytes + plan.table_bytes, wish.host_bytes) << seed;
      }
    }
  }
  EXPECT_GT(taken_with_less, 0);
}

TEST_F(Homes, options_that_make_no_sense_are_refused_by_name) {
  const auto error_of = [&](auto change) {
    PlanOptions wish = options(1);
    change(wish);
    return message_of<ConfigError>([&] { make_plan(model_, wish); });
  };
  using Options = PlanOptions;
  EXPECT_THAT(error_of([](Options& o) { o.micro_batches = 0; }), HasSubstr("PlanOptions::micro_batches is 0"));
  EXPECT_THAT(error_of([](Options& o) { o.commit_interval = -1; }), HasSubstr("PlanOptions::commit_interval is -1"));
  EXPECT_THAT(error_of([](Options& o) { o.io_depth = 0; }), HasSubstr("PlanOptions::io_depth is 0"));
  EXPECT_THAT(error_of([](Options& o) { o.graph_bytes = {1}; }), HasSubstr("PlanOptions::graph_bytes is a list of 1"));
  EXPECT_THAT(error_of([](Options& o) { o.speeds->visits.pop_back(); }), HasSubstr("PlanOptions::speeds.visits"));
  EXPECT_THAT(error_of([](Options& o) { o.speeds->machine.read_gb_per_s = 0; }), HasSubstr("read_gb_per_s is 0"));
}

// --- the update ring beside homes in host memory --------------------------------------------------------------------

class DeeperRings : public Homes {
 protected:
  DeeperRings() {
    model_ = toy_model({.visits = 24}, Precision::kBf16);
    for (PartitionSpec& partition : model_.partitions) partition.parameters.back().shape = {16384};
  }
  PlanOptions options() const {
    PlanOptions wish = Homes::options(1);
    wish.chunk_elements = 1 << 15;  // every partition is one chunk
    return wish;
  }
  // Which has all of the state.
  PlanOptions with_slow_drive() const {
    PlanOptions wish = options();
    wish.placement.state = {{HomeKind::kNvme, 1}};
    wish.placement.activations = {{HomeKind::kDevice, 1}};
    MachineSpeeds& machine = wish.speeds->machine;
    machine = machine_of(1);
    set_drives(machine, 0.3);
    machine.update_ns_per_element = 0.1;
    return wish;
  }
};

// Gradients take all of host memory but one buffer of each ring, where the fixed order puts no more of them on NVMe
// than it must: then every update waits for the one before.
TEST_F(DeeperRings, are_taken_where_a_step_is_then_shorter) {
  PlanOptions wish = options();
  wish.placement.weights = wish.placement.state = {{HomeKind::kNvme, 1}};
  wish.placement.activations = {{HomeKind::kDevice, 1}};
  MachineSpeeds& machine = wish.speeds->machine;
  machine = machine_of(1);
  set_drives(machine, 0.1);
  machine.update_ns_per_element = 100;
  machine.update_threads = 4;
  machine.cores = 4;
  wish.host_bytes = Planner(model_, wish).smallest_host(wish.device_bytes).value() + 256 * kKiB;
  const Plan order = planned(wish).value(), taken = make_plan(model_, wish);
  const auto slots = [](const Plan& plan) { return plan.host_update.bytes / plan.update_layout(0).bytes; };
  EXPECT_EQ(slots(order), 1);
  EXPECT_GT(slots(taken), 1);
  EXPECT_LT(predict(model_, taken, *wish.speeds).step_ms, 0.8 * predict(model_, order, *wish.speeds).step_ms);
}

// The drive has the same bytes to move wherever gradients rest, but while a backward runs it can only read what the
// update ring holds: host memory that gradients do not take lets it go on.
TEST_F(DeeperRings, make_gradients_rest_on_the_device_where_a_backward_then_reads_further_ahead) {
  PlanOptions wish = with_slow_drive();
  wish.update = UpdateMode::kDeferred;
  for (VisitTime& visit : wish.speeds->visits) visit = {.forward_ms = 0.1, .backward_ms = 0.4};
  wish.device_bytes = kMiB;
  wish.host_bytes = 2560 * kKiB;
  const Plan order = planned(wish).value();
  const Plan taken = make_plan(model_, wish);
  const auto on_device = [](const ChunkHomes& homes) { return homes.gradient == Home::kDevice; };
  EXPECT_TRUE(std::ranges::none_of(order.chunks, on_device));
  EXPECT_TRUE(std::ranges::all_of(taken.chunks, on_device));
  EXPECT_GT(taken.host_update.bytes, order.host_update.bytes);
  EXPECT_LT(predict(model_, taken, *wish.speeds).step_ms, 0.9 * predict(model_, order, *wish.speeds).step_ms);
  EXPECT_TRUE(free_to_choose(taken.options.placement.gradient)) << "nobody has asked for it";

  wish.placement.gradient = {{HomeKind::kHost, 1}};
  EXPECT_TRUE(std::ranges::none_of(make_plan(model_, wish).chunks, on_device));
}

// How many chunks a backward reads ahead of the updates that wait for the clip.
int64_t read_ahead(const Plan& plan) {
  return std::ranges::count(plan.prefetched[static_cast<size_t>(UpdateHalf::kAll)], true);
}

// While a backward goes on there is no gradient to keep room for: those that come from elsewhere have a ring of their
// own.
TEST_F(DeeperRings, hold_nothing_but_records) {
  PlanOptions wish = with_slow_drive();
  wish.update = UpdateMode::kDeferred;
  wish.placement.weights = {{HomeKind::kHost, 1}};
  wish.host_bytes = 3 * kMiB;
  for (const HomeKind home : {HomeKind::kDevice, HomeKind::kNvme, HomeKind::kHost}) {
    wish.placement.gradient = {{home, 1}};
    const Plan plan = make_plan(model_, wish);
    int64_t bytes = 0, chunks = 0;
    for (const int c : plan.update_order) {
      bytes += plan.record_bytes(c, Group::kState);
      if (bytes <= plan.host_update.bytes) ++chunks;
    }
    EXPECT_LT(chunks, static_cast<int64_t>(plan.chunks.size()));
    EXPECT_EQ(read_ahead(plan), chunks);
    const int64_t buffers = plan.host_gradients.bytes / plan.gradient_block_bytes(plan.update_order.back());
    EXPECT_EQ(buffers, home == HomeKind::kHost ? 0 : 4);
  }
}

// Updates of what is at home in host memory free no buffer of the ring: while they come first, the drive has nothing to
// read into.
TEST_F(DeeperRings, hold_what_the_forward_needs_first_where_the_drive_then_begins_with_the_updates) {
  PlanOptions wish = with_slow_drive();
  wish.update = UpdateMode::kDeferred;
  wish.placement.state = {};
  wish.placement.weights = {{HomeKind::kHost, 1}};
  wish.placement.gradient = {{HomeKind::kDevice, 1}};
  wish.speeds->machine.update_ns_per_element = 4;
  for (VisitTime& visit : wish.speeds->visits) visit = {.forward_ms = 0.1, .backward_ms = 0.4};
  wish.device_bytes = 3 * kMiB;
  wish.host_bytes = 3844 * kKiB;
  const Plan order = planned(wish).value();
  const Plan taken = make_plan(model_, wish);
  const auto first_updates = [](const Plan& plan) {  // of chunks at home in host memory, before any of the ring's
    const auto on_nvme = [&](int c) { return plan.chunks[c].state == Home::kNvme; };
    return std::ranges::find_if(plan.update_order, on_nvme) - plan.update_order.begin();
  };
  const auto in_host = [](const Plan& plan) {
    return std::ranges::count(plan.chunks, Home::kHost, &ChunkHomes::state);
  };
  EXPECT_EQ(first_updates(order), in_host(order));
  EXPECT_EQ(first_updates(taken), 0);
  EXPECT_GE(in_host(taken), in_host(order));
  EXPECT_GE(read_ahead(taken), read_ahead(order));
  EXPECT_LT(taken.busiest->step_ms, 0.95 * predict(model_, order, *wish.speeds).step_ms);
  EXPECT_THAT(taken.homes_words(), HasSubstr("in host memory state that is not read ahead"));
}

// Early updates take their state as gradients close and have no need of a deep ring. Where the clip may engage, that is
// no reason for a plan in which updates that wait for it have none.
TEST_F(DeeperRings, are_taken_for_steps_that_are_clipped_where_the_others_are_no_longer_for_it) {
  PlanOptions wish = with_slow_drive();
  for (VisitTime& visit : wish.speeds->visits) visit = {.forward_ms = 0.4, .backward_ms = 1.6};
  wish.device_bytes = kMiB;
  wish.host_bytes = 2304 * kKiB;
  const auto plan_for = [&](UpdateMode mode) {
    wish.update = mode;
    return make_plan(model_, wish);
  };
  const Plan either = plan_for(UpdateMode::kAuto), early = plan_for(UpdateMode::kSpeculative);
  ASSERT_TRUE(either.any_speculated());
  EXPECT_LE(either.busiest->step_ms, early.busiest->step_ms);
  EXPECT_GT(read_ahead(either), read_ahead(early));
  const double clipped_ms = clipped_step_ms(model_, either, *wish.speeds).value();
  EXPECT_LT(clipped_ms, 0.95 * predict(model_, early, *wish.speeds, UnitKind::kTrain).step_ms);
  EXPECT_LT(clipped_ms, 1.01 * plan_for(UpdateMode::kDeferred).busiest->step_ms);
  EXPECT_FALSE(clipped_step_ms(model_, early, *wish.speeds)) << "its updates wait for no clip";
  wish.clips = false;
  const Plan unclipped = plan_for(UpdateMode::kAuto);
  EXPECT_LT(read_ahead(unclipped), read_ahead(either));
  EXPECT_FALSE(clipped_step_ms(model_, unclipped, *wish.speeds));
}

// Homes are chosen for early updates where there are any: without them others are the best.
TEST_F(Homes, under_auto_are_predicted_to_be_as_fast_as_those_that_are_chosen_for_updates_that_wait) {
  int chosen_for_waiting = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    PlanOptions wish = options(seed);
    make_scarce(wish, seed);
    wish.host_bytes += static_cast<int64_t>(seed % 3) * 64 * kKiB;
    const auto mean_ms = [&](UpdateMode mode) {
      wish.update = mode;
      const Plan plan = make_plan(model_, wish);
      chosen_for_waiting += mode == UpdateMode::kAuto && !plan.any_speculated() ? 1 : 0;
      const double step_ms = predict(model_, plan, *wish.speeds).step_ms;
      return std::lerp(step_ms, clipped_step_ms(model_, plan, *wish.speeds).value_or(step_ms), 0.25);
    };
    // Tables are a large part of these budgets, and guessed from those of other plans.
    EXPECT_LE(mean_ms(UpdateMode::kAuto), 1.08 * mean_ms(UpdateMode::kDeferred)) << "seed " << seed;
  }
  EXPECT_GT(chosen_for_waiting, 0);
}

// ... and where the device holds few of them, on NVMe: more for the drive to move, and less to wait for.
TEST_F(DeeperRings, make_gradients_rest_on_nvme_where_lanes_waited_for_each_other) {
  PlanOptions wish = options();
  wish.update = UpdateMode::kAuto;
  wish.placement.state = {{HomeKind::kNvme, 1}};
  wish.placement.activations = {{HomeKind::kDevice, 1}};
  MachineSpeeds& machine = wish.speeds->machine;
  machine = machine_of(10);
  set_drives(machine, 1);
  machine.update_ns_per_element = 20;
  for (VisitTime& visit : wish.speeds->visits) visit = {.forward_ms = 0.1, .backward_ms = 0.4};
  wish.device_bytes = 350 * kKiB;
  wish.host_bytes = 1500 * kKiB;
  const Plan taken = make_plan(model_, wish);
  EXPECT_TRUE(std::ranges::all_of(taken.chunks, [](const ChunkHomes& c) { return c.gradient == Home::kNvme; }));
  wish.placement.gradient = {{HomeKind::kHost, 1}};
  const Plan in_host = make_plan(model_, wish);
  EXPECT_GT(taken.host_update.bytes, in_host.host_update.bytes);
  EXPECT_LT(predict(model_, taken, *wish.speeds).step_ms, 0.85 * predict(model_, in_host, *wish.speeds).step_ms);
}

// --- the size of chunks, and choices on few of them -----------------------------------------------------------------

TEST_F(Homes, are_the_same_whether_the_size_of_chunks_is_derived_or_given) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PlanOptions wish = options(seed);
    wish.chunk_elements = 0;
    make_scarce(wish, seed);
    const Plan derived = make_plan(model_, wish);
    wish.chunk_elements = derived.geometry.chunk_elements();
    const Plan given = make_plan(model_, wish);
    EXPECT_EQ(given.table(), derived.table()) << "seed " << seed;
    EXPECT_EQ(given.homes_words(), derived.homes_words()) << "seed " << seed;
  }
}

// Not from what tables leave of it, which depends on the plan.
TEST_F(Homes, have_chunks_whose_size_follows_from_the_host_budget_where_no_speeds_are_known) {
  PlanOptions wish = options(1);
  wish.chunk_elements = 0;
  wish.speeds.reset();
  for (const int64_t elements : {16384, 65536, 262144}) {
    wish.host_bytes = 16 * Planner(model_, wish).ring_buffer_bytes(elements);  // the least that gives this size
    EXPECT_EQ(make_plan(model_, wish).geometry.chunk_elements(), elements);
  }
}

// Updates are all that a step does: with one chunk a visit, threads have nothing to do at its end.
TEST_F(Homes, have_smaller_chunks_where_few_leave_threads_idle_so_that_more_memory_makes_no_step_longer) {
  model_ = toy_model({.visits = 6, .elements = 60000}, Precision::kBf16);
  PlanOptions wish = options(1);
  wish.chunk_elements = 0;
  wish.device_bytes = 8 * kMiB;
  wish.placement.state = wish.placement.weights = {{HomeKind::kHost, 1}};
  wish.commit_interval = 10;
  MachineSpeeds& machine = wish.speeds->machine;
  machine = machine_of(1);
  machine.update_ns_per_element = 100;
  machine.update_threads = machine.cores = 8;
  wish.speeds->visits.assign(model_.visits.size(), {.forward_ms = 0.1, .backward_ms = 0.4});
  const auto step_ms = [&](int64_t host_bytes) {
    wish.host_bytes = host_bytes;
    return make_plan(model_, wish).busiest.value().step_ms;
  };
  const double scarce_ms = step_ms(8 * kMiB), ample_ms = step_ms(256 * kMiB);
  EXPECT_LT(ample_ms, 1.05 * scarce_ms);
  const Plan ample = make_plan(model_, wish);
  EXPECT_LT(ample.geometry.chunk_elements(), Planner(model_, wish).chunk_elements(wish.host_bytes));
  wish.chunk_elements = Planner(model_, wish).chunk_elements(wish.host_bytes);
  EXPECT_LT(ample_ms, 0.7 * step_ms(256 * kMiB)) << "than with the size that memory has room for";
}

// Down to 256 Ki elements. One that is a hundredth faster at the least is taken in its place, then others beside that.
TEST_F(Homes, with_large_chunks_leave_no_size_of_them_that_is_clearly_faster) {
  model_ = toy_model({.visits = 6, .elements = 10'000'000}, Precision::kBf16);
  int smaller = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    PlanOptions wish = options(seed);
    wish.chunk_elements = 0;
    const Planner planner(model_, wish);
    wish.host_bytes = static_cast<int64_t>(seed + 12) * planner.ring_buffer_bytes(2 << 20);
    wish.device_bytes = planner.smallest_device(wish.host_bytes).value() * 3 / 2;
    const Plan taken = make_plan(model_, wish);
    const int64_t derived = planner.chunk_elements(wish.host_bytes);
    smaller += taken.geometry.chunk_elements() < derived / 2 ? 1 : 0;
    for (int64_t elements = derived; elements >= 256 * kKiB; elements /= 2) {
      wish.chunk_elements = elements;
      const std::optional<Plan> given = find_plan(model_, wish);
      ASSERT_TRUE(given);
      EXPECT_LT(taken.busiest->step_ms, 1.011 * given->busiest->step_ms) << seed << ", " << elements;
    }
  }
  EXPECT_GT(smaller, 0);
}

TEST_F(Homes, of_many_chunks_the_choice_is_made_on_few_and_the_chunks_stay) {
  model_ = toy_model({.visits = 6, .elements = 60000}, Precision::kBf16);
  PlanOptions wish = options(7);
  wish.chunk_elements = 128;
  const FewPieces few = in_few_pieces(model_, wish);
  EXPECT_TRUE(few.fewer);
  EXPECT_GT(few.options.chunk_elements, wish.chunk_elements);
  EXPECT_FALSE(in_few_pieces(model_, few.options).fewer);
  wish.host_bytes = Planner(model_, wish).smallest_host(wish.device_bytes).value() * 3 / 2;
  const auto order = planned(wish);
  ASSERT_TRUE(order);
  const Plan taken = make_plan(model_, wish);
  EXPECT_EQ(taken.geometry.chunk_elements(), 128);
  EXPECT_LE(predict(model_, taken, *wish.speeds).step_ms, predict(model_, *order, *wish.speeds).step_ms);
}

TEST_F(Homes, of_many_partitions_the_choice_is_made_on_a_chunk_or_two_of_each) {
  model_ = toy_model({.visits = 600}, Precision::kBf16);
  PlanOptions wish = options(1);
  wish.chunk_elements = 128;
  const FewPieces few = in_few_pieces(model_, wish);
  EXPECT_TRUE(few.fewer);
  const Geometry whole(model_.partitions, kMiB);
  EXPECT_GT(count_chunks(whole.partitions(), wish.chunk_elements), 2 * 600);
  EXPECT_LE(count_chunks(whole.partitions(), few.options.chunk_elements), 2 * 600);
  EXPECT_LE(few.options.chunk_elements, 1024);  // the largest partition has 896 elements
  EXPECT_GT(few.options.chunk_elements, wish.chunk_elements);
}

TEST_F(Homes, of_many_micro_batches_the_choice_is_made_on_few_that_are_as_large_together) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    PlanOptions wish = options(seed);
    wish.micro_batches = 50;
    make_scarce(wish, seed);
    const FewPieces few = in_few_pieces(model_, wish);
    ASSERT_TRUE(few.fewer);
    EXPECT_FALSE(in_few_pieces(few.model, few.options).fewer);
    const int64_t m = few.options.micro_batches;
    ASSERT_LT(m, 50);
    for (size_t t = 0; t < model_.tensors.size(); ++t) {
      EXPECT_NEAR(m * few.model.tensors[t].elements, 50 * model_.tensors[t].elements, m);
    }
    for (size_t v = 0; v < model_.visits.size(); ++v) {
      EXPECT_NEAR(m * few.options.speeds->visits[v].backward_ms, 50 * wish.speeds->visits[v].backward_ms, 1e-9);
    }
    const Plan taken = make_plan(model_, wish);
    EXPECT_EQ(taken.options.micro_batches, 50);
    const auto order = planned(wish);
    ASSERT_TRUE(order);
    EXPECT_LE(predict(model_, taken, *wish.speeds).step_ms, predict(model_, *order, *wish.speeds).step_ms);
  }
}

TEST_F(Homes, without_speeds_the_order_is_fixed) {
  PlanOptions wish = options(1);
  make_scarce(wish, 1);
  wish.speeds.reset();
  const Plan plan = make_plan(model_, wish);
  EXPECT_EQ(plan.homes_by, HomesBy::kOrder);
  EXPECT_FALSE(plan.busiest);
}

}  // namespace
}  // namespace sluice::testing
