// Predictions against what a plan moves, worked out by hand, and what must hold for every plan.
#include "engine/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "core/bytes.h"
#include "engine/planner.h"
#include "engine/simulate.h"
#include "offload/executor.h"
#include "tests/engine/machines.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

const HomeShares kAuto = {{HomeKind::kAuto, 1}}, kHost = {{HomeKind::kHost, 1}}, kNvme = {{HomeKind::kNvme, 1}};

PlanOptions options_of(const HomeShares& weights, const HomeShares& state) {
  PlanOptions options{.gradient_dtype = DType::kBf16,
                      .device_bytes = 8 * kMiB,
                      .host_bytes = 16 * kMiB,
                      .workspace_bytes = 4096,
                      .micro_batches = 2,
                      .chunk_elements = 1024};
  options.placement.weights = weights;
  options.placement.state = state;
  return options;
}

class Predict : public ::testing::Test {
 protected:
  StepSpeeds speeds(const MachineSpeeds& machine, VisitTime visit = {}) const {
    return {machine, std::vector<VisitTime>(model_.visits.size(), visit)};
  }
  int64_t moved(const Plan& plan, const std::string& link) const {
    int64_t bytes = 0;
    for (const MoveRow& row : plan.moves) bytes += row.link == link ? row.bytes : 0;
    return bytes;
  }
  Prediction deferred(const HomeShares& weights, const HomeShares& state, int commit_interval,
                      const MachineSpeeds& machine) const {
    PlanOptions options = options_of(weights, state);
    options.commit_interval = commit_interval;
    options.update = UpdateMode::kDeferred;
    return predict(model_, make_plan(model_, options), speeds(machine));
  }
  ModelSpec model_ = toy_model({.visits = 6, .elements = 3000}, Precision::kBf16);
};

TEST_F(Predict, a_link_alone_takes_the_time_of_the_bytes_that_a_step_moves_over_it) {
  for (const auto& [weights, state] : {std::pair(kHost, kNvme), std::pair(kNvme, kNvme)}) {
    const Plan plan = make_plan(model_, options_of(weights, state));
    for (const auto& [lane, link, speed] :
         {std::tuple(Lane::kRead, "nvme read", &MachineSpeeds::read_gb_per_s),
          std::tuple(Lane::kWrite, "nvme write", &MachineSpeeds::write_gb_per_s),
          std::tuple(Lane::kUpload, "upload", &MachineSpeeds::upload_gb_per_s),
          std::tuple(Lane::kDownload, "download", &MachineSpeeds::download_gb_per_s)}) {
      MachineSpeeds machine = endless();
      machine.*speed = 0.002;
      machine.mixed_gb_per_s = 0.004;
      const Prediction prediction = predict(model_, plan, speeds(machine));
      const double expected_ms = static_cast<double>(moved(plan, link)) / 0.002 / 1e6;
      EXPECT_GT(expected_ms, 0.1);
      EXPECT_NEAR(prediction.step_ms, expected_ms, 1e-3) << link;
      EXPECT_NEAR(prediction.busy(lane), expected_ms, 1e-3) << link;
    }
  }
}

TEST_F(Predict, a_table_spreads_what_commits_write_over_their_interval) {
  PlanOptions options = options_of(kHost, kHost);
  options.update = UpdateMode::kDeferred;
  options.commit_interval = 1;
  const int64_t every = moved(make_plan(model_, options), "nvme write");
  options.commit_interval = 4;
  EXPECT_GT(every, 0);
  EXPECT_NEAR(static_cast<double>(moved(make_plan(model_, options), "nvme write")), static_cast<double>(every) / 4, 64);
}

TEST_F(Predict, reads_and_writes_alone_take_what_the_drive_needs_for_both) {
  const Plan plan = make_plan(model_, options_of(kHost, kNvme));
  MachineSpeeds machine = endless();
  set_drives(machine, 0.004);
  const Prediction prediction = predict(model_, plan, speeds(machine));
  const double bytes = static_cast<double>(moved(plan, "nvme read") + moved(plan, "nvme write"));
  EXPECT_NEAR(prediction.alone(LaneGroup::kNvme), bytes / 0.004 / 1e6, 1e-6);
  EXPECT_EQ(prediction.binding, LaneGroup::kNvme);
}

TEST_F(Predict, compute_is_every_visits_forward_and_backward_for_every_micro_batch) {
  const Plan plan = make_plan(model_, options_of(kHost, kHost));
  const Prediction prediction = predict(model_, plan, speeds(endless(), {.forward_ms = 1, .backward_ms = 3}));
  // Two micro-batches; the last visit has no forward of its own.
  EXPECT_NEAR(prediction.busy(Lane::kCompute), 2 * (5 * 1 + 6 * 3), 1e-3);
  EXPECT_NEAR(prediction.step_ms, prediction.busy(Lane::kCompute), 1e-3);
  EXPECT_EQ(prediction.binding, LaneGroup::kCompute);
}

TEST_F(Predict, visits_that_keep_their_graphs_recompute_nothing) {
  PlanOptions options = options_of({{HomeKind::kHostAndDevice, 1}}, kHost);
  options.graph_bytes = {1000, 1000, 0, 1000, 1000, 1000};
  const VisitTime time{.forward_ms = 1, .backward_ms = 3, .keeping_forward_ms = 1.25, .kept_backward_ms = 2};
  const Prediction prediction = predict(model_, make_plan(model_, options), speeds(endless(), time));
  // Two micro-batches; one visit has nothing to keep, the last is a sink.
  EXPECT_NEAR(prediction.busy(Lane::kCompute), 2 * (4 * (1.25 + 2) + (1 + 3) + 3), 1e-3);
}

TEST_F(Predict, an_update_takes_its_elements_and_the_checksums_that_its_homes_ask_for) {
  MachineSpeeds machine = endless();
  machine.checksum_gb_per_s = 0.001;
  const auto update_ms = [&](const HomeShares& weights, const HomeShares& state, int commit_interval) {
    return deferred(weights, state, commit_interval, machine).alone(LaneGroup::kCpu);
  };
  const Plan plan = make_plan(model_, options_of(kHost, kHost));
  const double elements = static_cast<double>(plan.geometry.padded_elements());
  const double weights_ms = elements * 2 / 0.001 / 1e6, state_ms = elements * 10 / 0.001 / 1e6;
  EXPECT_NEAR(update_ms(kHost, kHost, 4), (weights_ms + state_ms) / 4, 1e-6);  // of commits alone
  EXPECT_NEAR(update_ms(kHost, kNvme, 1), weights_ms + 2 * state_ms, 1e-6);
  // Weights are verified once more on their way to the backward, but for those of the head.
  EXPECT_GT(update_ms(kNvme, kNvme, 1), 2 * (weights_ms + state_ms));
  EXPECT_LT(update_ms(kNvme, kNvme, 1), 3 * weights_ms + 2 * state_ms);
}

TEST_F(Predict, sums_beside_an_update_cost_their_bytes_share_of_what_all_of_them_add) {
  MachineSpeeds machine = endless();
  machine.summed_ns_per_element = machine.update_ns_per_element + 26;  // 12 B as they come and go, 2 B of gradient
  const auto update_ms = [&](const HomeShares& weights, const HomeShares& state, int commit_interval) {
    return deferred(weights, state, commit_interval, machine).alone(LaneGroup::kCpu);
  };
  const Plan plan = make_plan(model_, options_of(kHost, kHost));
  const double elements = static_cast<double>(plan.geometry.padded_elements());
  EXPECT_NEAR(update_ms(kHost, kHost, 4), elements * 12 / 4 / 1e6, 1e-6);
  EXPECT_NEAR(update_ms(kHost, kNvme, 1), elements * (2 + 2 * 10) / 1e6, 1e-6);
}

TEST_F(Predict, commits_are_spread_over_their_interval) {
  const auto write_ms = [&](int interval) {
    MachineSpeeds machine = endless();
    machine.write_gb_per_s = 0.002;
    machine.mixed_gb_per_s = 0.004;
    machine.commit_ms = 8;
    return deferred(kHost, kHost, interval, machine).busy(Lane::kWrite);
  };
  EXPECT_GT(write_ms(1), 8);
  EXPECT_NEAR(write_ms(4), write_ms(1) / 4, 1e-3);
}

// Nothing is written beside a commit, so its flushes are the drive's time as its bytes are.
TEST_F(Predict, a_drive_whose_flush_takes_the_step_binds_it_and_compute_does_from_a_larger_batch) {
  MachineSpeeds machine = endless();
  machine.commit_ms = 20;
  const auto predicted = [&](int micro_batches) {
    PlanOptions options = options_of(kHost, kNvme);
    options.commit_interval = 1;
    options.micro_batches = micro_batches;
    return predict(model_, make_plan(model_, options), speeds(machine, {.forward_ms = 0.1, .backward_ms = 0.3}));
  };
  const Prediction few = predicted(2);
  EXPECT_NEAR(few.alone(LaneGroup::kNvme), 20, 0.01);
  EXPECT_EQ(few.binding, LaneGroup::kNvme);
  EXPECT_NEAR(few.critical_micro_batches.value(), 20 / (5 * 0.1 + 6 * 0.3), 0.01);
  EXPECT_EQ(predicted(9).binding, LaneGroup::kCompute);
}

TEST_F(Predict, requests_that_take_long_are_the_drives_time_as_far_as_it_has_no_others) {
  MachineSpeeds machine = endless();
  machine.transfer_us = 1000;
  const auto alone_ms = [&](const HomeShares& state) {
    PlanOptions options = options_of(kHost, state);
    options.commit_interval = 10;
    options.update = UpdateMode::kDeferred;
    return predict(model_, make_plan(model_, options), speeds(machine)).alone(LaneGroup::kNvme);
  };
  EXPECT_GE(alone_ms(kNvme), 2);  // its last read, then its last write
  EXPECT_LT(alone_ms(kHost), 1);  // it has none but those of commits
}

TEST_F(Predict, a_step_is_no_shorter_than_any_resource_and_a_faster_machine_is_not_slower) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    model_ = random_model(seed, Precision::kBf16);
    PlanOptions options = options_of(seed % 2 == 0 ? kHost : kNvme, kNvme);
    options.update = seed % 3 == 0 ? UpdateMode::kSpeculative : UpdateMode::kDeferred;
    const Plan plan = make_plan(model_, options);
    const MachineSpeeds machine{.read_gb_per_s = 0.004,
                                .write_gb_per_s = 0.006,
                                .mixed_gb_per_s = seed % 4 < 2 ? 0.005 : 0.004,  // less than in turns
                                .upload_gb_per_s = 0.02,
                                .download_gb_per_s = 0.03,
                                .update_ns_per_element = 20,
                                .checksum_gb_per_s = 0.05,
                                .close_gb_per_s = 0.1,
                                .commit_ms = 0.1,
                                .transfer_us = 50,
                                .hop_us = 20,
                                .update_threads = 2,
                                .cores = 2,
                                .compute_cores = 2,
                                .copy_cores = 1};
    const Prediction prediction = predict(model_, plan, speeds(machine, {.forward_ms = 0.2, .backward_ms = 0.6}));
    for (int lane = 0; lane < kLaneCount; ++lane) {
      EXPECT_LE(prediction.busy_ms[lane], prediction.step_ms * (1 + 1e-9));
    }
    for (double alone_ms : prediction.alone_ms) EXPECT_LE(alone_ms, prediction.step_ms * (1 + 1e-9));
    for (double MachineSpeeds::*speed : {&MachineSpeeds::read_gb_per_s, &MachineSpeeds::upload_gb_per_s,
                                         &MachineSpeeds::checksum_gb_per_s, &MachineSpeeds::cores}) {
      MachineSpeeds faster = machine;
      faster.*speed *= 2;
      if (speed == &MachineSpeeds::read_gb_per_s) faster.mixed_gb_per_s *= 2, faster.write_gb_per_s *= 2;
      const Prediction sooner = predict(model_, plan, speeds(faster, {.forward_ms = 0.2, .backward_ms = 0.6}));
      EXPECT_LE(sooner.step_ms, prediction.step_ms * 1.03) << "model " << seed;  // list order has its anomalies
    }
  }
}

// Several at a time: no update waits until the one before has been copied to the store, nor for records to come.
TEST_F(Predict, updates_of_state_on_the_device_take_all_update_threads) {
  model_ = toy_model({.visits = 6, .elements = 30000}, Precision::kBf16);
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative}) {
    for (const int interval : {1, 10}) {
      if (interval > 1 && update == UpdateMode::kSpeculative) continue;
      PlanOptions options = options_of(kAuto, {{HomeKind::kDevice, 1}});
      options.update = update;
      options.commit_interval = interval;
      const Plan plan = make_plan(model_, options);
      MachineSpeeds machine = endless();
      machine.update_ns_per_element = 10;
      machine.update_threads = machine.cores = 8;
      const Prediction prediction = predict(model_, plan, speeds(machine));
      EXPECT_LT(prediction.step_ms, prediction.alone(LaneGroup::kCpu) * 1.5) << name_of(update) << ", " << interval;
    }
  }
}

// Chunks of both homes in turns, a few of each, as small partitions beside large ones have them.
TEST_F(Predict, updates_in_host_memory_wait_for_no_chunk_at_home_on_the_device) {
  model_ = toy_model({.visits = 40, .elements = 3000}, Precision::kBf16);
  constexpr int kTurns = 40;
  HomeShares state;
  for (int i = 0; i < kTurns; ++i) state.push_back({i % 2 == 0 ? HomeKind::kDevice : HomeKind::kHost, 1.0 / kTurns});
  PlanOptions options = options_of(kAuto, state);
  options.update = UpdateMode::kDeferred;
  options.commit_interval = 100;
  const Plan plan = make_plan(model_, options);
  MachineSpeeds machine = endless();
  machine.update_ns_per_element = 10;
  machine.device_update_gb_per_s = 1e9;
  machine.update_threads = machine.cores = 8;
  double in_host = 0;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    if (!plan.chunks[c].updated_on_device()) in_host += static_cast<double>(plan.geometry.chunks()[c].elements);
  }
  EXPECT_GT(in_host, 0);
  EXPECT_LT(predict(model_, plan, speeds(machine)).step_ms, 1.3 * in_host * machine.update_ns_per_element / 1e6);
}

TEST_F(Predict, updates_by_a_gpu_are_no_work_of_the_hosts_cores) {
  model_ = toy_model({.visits = 6, .elements = 30000}, Precision::kBf16);
  const Plan plan = make_plan(model_, options_of(kAuto, {{HomeKind::kDevice, 1}}));
  MachineSpeeds machine = endless();
  machine.device_update_gb_per_s = 0.1;
  machine.update_threads = 8;
  std::array<Prediction, 2> predictions;
  for (const size_t few : {0, 1}) {
    machine.cores = few == 1 ? 1 : 16;
    predictions[few] = predict(model_, plan, speeds(machine));
    EXPECT_LE(predictions[few].alone(LaneGroup::kCpu), predictions[few].step_ms * 1.001) << machine.cores;
  }
  EXPECT_NEAR(predictions[1].alone(LaneGroup::kCpu), predictions[0].alone(LaneGroup::kCpu),
              0.01 * predictions[0].alone(LaneGroup::kCpu));
}

TEST_F(Predict, a_drive_moves_no_faster_both_ways_at_once_than_one_way_alone) {
  const Plan plan = make_plan(model_, options_of(kHost, kNvme));
  MachineSpeeds machine = endless();
  set_drives(machine, 0.004);
  machine.mixed_gb_per_s = 0.008;  // as fast as alone
  const Prediction prediction = predict(model_, plan, speeds(machine));
  machine.mixed_gb_per_s = 1;
  EXPECT_EQ(predict(model_, plan, speeds(machine)).step_ms, prediction.step_ms);
}

TEST_F(Predict, a_drive_that_is_slowest_both_ways_at_once_binds_a_step_that_moves_bytes_both_ways) {
  const Plan plan = make_plan(model_, options_of(kHost, kNvme));
  MachineSpeeds machine = endless();
  set_drives(machine, 0.004);
  const VisitTime visit{.forward_ms = 4, .backward_ms = 12};
  const Prediction alike = predict(model_, plan, speeds(machine, visit));
  EXPECT_EQ(alike.binding, LaneGroup::kCompute);
  machine.mixed_gb_per_s = 0.0004;
  const Prediction slow = predict(model_, plan, speeds(machine, visit));
  EXPECT_GT(slow.step_ms, 2 * alike.step_ms);
  EXPECT_EQ(slow.binding, LaneGroup::kNvme);
  EXPECT_GT(slow.alone(LaneGroup::kNvme), 0.8 * slow.step_ms);
}

TEST_F(Predict, compute_binds_above_the_critical_batch_and_not_below) {
  MachineSpeeds machine = endless();
  set_drives(machine, 0.004);
  machine.hop_us = 50;
  const StepSpeeds with = speeds(machine, {.forward_ms = 0.1, .backward_ms = 0.3});
  const auto predicted = [&](int micro_batches) {
    PlanOptions options = options_of(kHost, kNvme);
    options.micro_batches = micro_batches;
    return predict(model_, make_plan(model_, options), with);
  };
  const double critical = predicted(1).critical_micro_batches.value();
  ASSERT_GT(critical, 1.5);
  EXPECT_NEAR(predicted(2).critical_micro_batches.value(), critical, 1e-6);  // whatever it is told from
  EXPECT_EQ(predicted(static_cast<int>(critical)).binding, LaneGroup::kNvme);
  EXPECT_EQ(predicted(static_cast<int>(critical) + 1).binding, LaneGroup::kCompute);
}

// What compute does whatever the number of micro-batches, it has done before it is compared with the drive.
TEST_F(Predict, closing_gradients_are_computes_part_of_every_step_and_make_the_critical_batch_smaller) {
  MachineSpeeds machine = endless();
  set_drives(machine, 0.004);
  const auto predicted = [&] {
    return predict(model_, make_plan(model_, options_of(kHost, kNvme)),
                   speeds(machine, {.forward_ms = 0.1, .backward_ms = 0.3}));
  };
  const double critical = predicted().critical_micro_batches.value();
  const Plan plan = make_plan(model_, options_of(kHost, kNvme));
  const double closing_ms = 4;
  machine.close_gb_per_s = static_cast<double>(plan.geometry.padded_elements() * 4) / closing_ms / 1e6;
  EXPECT_NEAR(predicted().critical_micro_batches.value(), critical - closing_ms / (5 * 0.1 + 6 * 0.3), 0.01);
}

// Compute is the longest at first, as gradients close slowly.
TEST_F(Predict, no_batch_is_critical_where_each_micro_batch_adds_more_to_a_link_than_to_compute) {
  PlanOptions options = options_of({{HomeKind::kHostAndDevice, 1}}, kHost);
  options.placement.activations = kHost;
  MachineSpeeds machine = endless();
  machine.close_gb_per_s = 1e-3;
  machine.upload_gb_per_s = 1e-3;
  options.commit_interval = 1000;
  options.update = UpdateMode::kDeferred;
  options.placement.gradient = {{HomeKind::kDevice, 1}};
  const Prediction prediction =
      predict(model_, make_plan(model_, options), speeds(machine, {.forward_ms = 0.01, .backward_ms = 0.01}));
  EXPECT_EQ(prediction.binding, LaneGroup::kCompute);
  EXPECT_FALSE(prediction.critical_micro_batches);
}

TEST_F(Predict, a_clipped_step_runs_twice_under_replay_and_has_its_updates_behind_the_clip_under_auto) {
  const StepSpeeds with = speeds(machine_of(0.01), {.forward_ms = 0.1, .backward_ms = 0.3});
  const auto made = [&](UpdateMode update, bool clips) {
    PlanOptions options = options_of(kHost, kNvme);
    options.update = update;
    options.clips = clips;
    return make_plan(model_, options);
  };
  const auto clipped_ms = [&](const Plan& plan) { return clipped_step_ms(model_, plan, with); };
  for (const UpdateMode update : {UpdateMode::kReplay, UpdateMode::kAuto}) {
    const Plan plan = made(update, true);
    const double unclipped_ms = predict(model_, plan, with).step_ms;
    ASSERT_TRUE(clipped_ms(plan)) << name_of(update);
    if (update == UpdateMode::kReplay) {
      EXPECT_DOUBLE_EQ(*clipped_ms(plan), 2 * unclipped_ms);
    } else {
      EXPECT_EQ(*clipped_ms(plan), predict(model_, plan, with, UnitKind::kTrain).step_ms);
      EXPECT_GT(*clipped_ms(plan), unclipped_ms);
    }
    EXPECT_FALSE(clipped_ms(made(update, false))) << name_of(update);
  }
  EXPECT_FALSE(clipped_ms(made(UpdateMode::kDeferred, true)));
}

TEST_F(Predict, a_time_for_each_visit_must_be_given) {
  const Plan plan = make_plan(model_, options_of(kHost, kHost));
  StepSpeeds with = speeds(endless());
  with.visits.pop_back();
  EXPECT_THROW(predict(model_, plan, with), std::logic_error);
  EXPECT_THROW(predicted_step_ms(model_, plan, with, UnitKind::kTrain), std::logic_error);
}

TEST(Busiest, resource_binds_from_80_percent_of_the_step_and_else_lanes_wait) {
  EXPECT_EQ(binding_words({LaneGroup::kNvme, 80, 100}), "nvme binds");
  EXPECT_EQ(binding_words({LaneGroup::kCpu, 49, 84}), "busiest: cpu 49 of 84 ms; lanes wait for each other");
  EXPECT_EQ(binding_words({LaneGroup::kCompute, 1.5, 2}),
            "busiest: compute 1.50 of 2.00 ms; lanes wait for each other");
  EXPECT_FALSE(Busiest{}.binds());  // nothing is known of the step
}

TEST_F(Predict, the_share_of_early_updates_is_the_best_predicted_one_where_speeds_are_known) {
  PlanOptions options = options_of(kHost, kNvme);
  options.host_bytes = kMiB / 4;
  options.update = UpdateMode::kSpeculative;
  const auto share_of = [](const Plan& plan) {
    const auto early = std::count(plan.update_times.begin(), plan.update_times.end(), UpdateTime::kEarly);
    return static_cast<double>(early) / static_cast<double>(plan.chunks.size());
  };
  const Plan unknown = make_plan(model_, options);
  EXPECT_NEAR(share_of(unknown), 0.75, 0.15);
  // Nearly all of the compute is in the forward: so must be the updates.
  MachineSpeeds machine = endless();
  set_drives(machine, 0.01);
  options.speeds = speeds(machine, {.forward_ms = 5, .backward_ms = 0.01});
  const Plan known = make_plan(model_, options);
  EXPECT_LT(share_of(known), share_of(unknown));
  const double best_ms = predict(model_, known, *options.speeds).step_ms;
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    PlanOptions tried = options;
    tried.speculated_share = share;
    EXPECT_LE(best_ms, predict(model_, make_plan(model_, tried), *options.speeds).step_ms * 1.01) << share;
  }
}

// The engine's own units where reads of state take 144 ms a step, its writes 72, copies 12 to 24, updates 24. Weights
// and gradients on NVMe take a fifth of state's time each way.
struct Balance {
  double compute_ms = 0;
  int slots = 0;
  double share = 0;  // of the updates in the backward
  HomeKind others = HomeKind::kHost;
};
double efficiency(const Balance& balance) {
  constexpr int kVisits = 24;
  ModelSpec model = toy_model({.visits = kVisits}, Precision::kBf16);
  for (PartitionSpec& partition : model.partitions) partition.parameters.back().shape = {4096};  // slots of one size
  PlanOptions options = options_of({{balance.others, 1}}, kNvme);
  options.placement.gradient = {{balance.others, 1}};
  options.micro_batches = 1;
  options.chunk_elements = 1 << 14;  // every partition is one chunk
  options.speculated_share = balance.share;
  options.placement.activations = {{HomeKind::kDevice, 1}};
  Plan plan = make_plan(model, options);
  const int64_t slot_bytes = plan.update_layout(plan.update_order[1]).bytes;
  for (int round = 0; round < 4; ++round) {  // where fewer gradients pass, their ring leaves some of its memory
    options.host_bytes -= plan.host_update.bytes - balance.slots * slot_bytes - slot_bytes / 2;
    plan = make_plan(model, options);
  }
  EXPECT_EQ(plan.host_update.bytes / slot_bytes, balance.slots);
  const UnitKind kind = unclipped_kind(plan);
  const UnitProgram unit = build_unit(model, plan, kind);
  std::array<double, kLaneCount> lane_ms{};
  std::vector<HopCost> costs;
  for (const Hop& hop : unit.program.hops()) {
    HopCost cost{.due = due_in_steady_step(kind, hop) ? Due::kYes : Due::kNo};
    const double part = hop.group == Group::kState ? 1 : 0.2;
    if (hop.verb == Verb::kSwapIn) cost.work_ms = 6 * part;
    if (hop.verb == Verb::kSwapOut && hop.group == Group::kState) cost.work_ms = 3;
    if (hop.verb == Verb::kSwapOut && balance.others == HomeKind::kNvme) cost.work_ms = 3 * part;
    if (hop.verb == Verb::kUpload || hop.verb == Verb::kDownload) cost.work_ms = 0.5;
    if (hop.verb == Verb::kUpdate) cost.work_ms = 1;
    if (hop.verb == Verb::kCompute) {
      const bool backward = unit.turns[hop.operands].pass == Pass::kBackward;
      cost.work_ms = (!backward ? 1 : hop.visit == kVisits - 1 ? 4 : 3) * balance.compute_ms / kVisits / 4;
    }
    costs.push_back(cost);
    if (cost.due == Due::kYes) lane_ms[static_cast<size_t>(hop.lane())] += cost.work_ms;
  }
  SimulationOptions simulation{.costs = costs, .lanes = {}};
  for (size_t lane = 0; lane < kLaneCount; ++lane) {
    simulation.lanes[lane].in_flight = in_flight_limit(static_cast<Lane>(lane), 4);
  }
  return *std::max_element(lane_ms.begin(), lane_ms.end()) / simulate(unit.program, simulation).total_ms;
}

TEST(EarlyUpdates, bring_a_step_with_few_slots_to_the_time_of_its_longest_lane) {
  for (const double compute_ms : {96, 192, 384}) {
    for (const int slots : {2, 4}) {
      double best = 0;
      for (const double share : {0.25, 0.5, 0.625, 0.75, 0.875, 1.0}) {
        best = std::max(best, efficiency({compute_ms, slots, share}));
      }
      const double deferred = efficiency({compute_ms, slots, 0});
      EXPECT_GE(deferred, 0.58) << compute_ms << " ms, slots " << slots;
      EXPECT_LE(deferred, 0.92) << compute_ms << " ms, slots " << slots;
      EXPECT_GE(best, 0.95) << compute_ms << " ms, slots " << slots;
    }
  }
}

// A visit's weights come before the state of updates to come: else compute waits for its own step's writes.
TEST(EarlyUpdates, leave_neither_drive_nor_compute_idle_with_weights_and_gradients_on_nvme) {
  for (const double compute_ms : {96, 240, 480}) {
    for (const int slots : {4, 24}) {
      double best = 0;
      for (const double share : {0.25, 0.5, 0.625, 0.75, 0.875, 1.0}) {
        best = std::max(best, efficiency({compute_ms, slots, share, HomeKind::kNvme}));
      }
      EXPECT_GE(best, 0.95) << compute_ms << " ms, slots " << slots;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
