// What each hop of a unit costs, by a machine's speeds.
#include "engine/hop_costs.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "core/bytes.h"
#include "engine/planner.h"
#include "tests/engine/machines.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

class Costs : public ::testing::Test {
 protected:
  explicit Costs(HomeKind weights = HomeKind::kHost, int drives = 1)
      : model_(toy_model({.visits = 6, .elements = 3000}, Precision::kBf16)),
        plan_(make_plan(model_, options_of(weights, drives))) {}
  static PlanOptions options_of(HomeKind weights, int drives) {
    PlanOptions options{.gradient_dtype = DType::kBf16,
                        .device_bytes = 8 * kMiB,
                        .host_bytes = 16 * kMiB,
                        .workspace_bytes = 4096,
                        .micro_batches = 2,
                        .chunk_elements = 1024,
                        .drives = drives};
    options.placement.weights = {{weights, 1}};
    options.placement.state = {{HomeKind::kNvme, 1}};
    return options;
  }
  // Of the hops that a step has which commits.
  std::vector<std::pair<Hop, HopCost>> costs(const MachineSpeeds& machine) const {
    const UnitKind kind = unclipped_kind(plan_);
    const UnitProgram unit = build_unit(model_, plan_, kind);
    const StepSpeeds speeds{machine, std::vector<VisitTime>(model_.visits.size())};
    const std::vector<HopCost> of_step = UnitCosts(plan_, speeds, unit, kind).of_step(Commits::kYes);
    std::vector<std::pair<Hop, HopCost>> costs;
    for (size_t i = 0; i < of_step.size(); ++i) {
      if (of_step[i].due == Due::kYes) costs.emplace_back(unit.program.hops()[i], of_step[i]);
    }
    return costs;
  }
  static bool is_transfer(const Hop& hop) { return hop.verb == Verb::kSwapIn || hop.verb == Verb::kSwapOut; }

  ModelSpec model_;
  Plan plan_;
};

TEST_F(Costs, of_every_transfer_have_its_requests_and_of_every_hop_its_handover) {
  MachineSpeeds machine = endless();
  machine.transfer_us = 100;
  machine.hop_us = 10;
  machine.commit_ms = 3;
  for (const double copy_cores : {0.0, 1.0}) {  // a GPU, which has its copies in hand already, and host memory
    machine.copy_cores = copy_cores;
    for (const auto& [hop, cost] : costs(machine)) {
      const bool copy = hop.verb == Verb::kUpload || hop.verb == Verb::kDownload;
      const bool by_thread = hop.verb == Verb::kUpdate || hop.verb == Verb::kVerify || hop.verb == Verb::kSeal;
      const double expected_ms = is_transfer(hop) ? 0.11 : hop.verb == Verb::kCommit ? 3.01 : 0.01;
      const bool is_work = by_thread || (copy && copy_cores > 0);
      EXPECT_DOUBLE_EQ(cost.latency_ms, is_work ? 0 : expected_ms) << name_of(hop.verb);
      if (!is_work) continue;
      EXPECT_NEAR(cost.work_ms, expected_ms, 1e-5) << name_of(hop.verb);
    }
  }
}

// What a request takes of its direction no latency has again.
class CostsOfRequests : public Costs, public ::testing::WithParamInterface<int> {
 protected:
  CostsOfRequests() : Costs(HomeKind::kHost, GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(drives, CostsOfRequests, ::testing::Values(1, 4));

TEST_P(CostsOfRequests, are_the_drives_time_but_for_the_part_of_a_mebibyte_of_each_which_the_speeds_have) {
  MachineSpeeds machine = endless();
  machine.transfer_us = 100;
  machine.read_request_us = 20;
  machine.write_request_us = 40;
  std::set<Verb> seen;
  for (const auto& [hop, cost] : costs(machine)) {
    if (!is_transfer(hop)) continue;
    seen.insert(hop.verb);
    const double part = 1 - static_cast<double>(plan_.drive_bytes(hop)) / (kMiB * GetParam());
    ASSERT_GT(part, 0.9);
    const double request_us = part * (hop.verb == Verb::kSwapIn ? 20 : 40);
    EXPECT_NEAR(cost.work_ms, request_us / 1e3, 2e-5);
    EXPECT_DOUBLE_EQ(cost.latency_ms, (100 - request_us) / 1e3);
  }
  EXPECT_EQ(seen.size(), 2u);
}

class CostsOfWeightsOnNvme : public Costs {
 protected:
  CostsOfWeightsOnNvme() : Costs(HomeKind::kNvme) {}
};

TEST_F(CostsOfWeightsOnNvme, want_for_a_copy_and_a_closing_gradient_the_cores_of_a_copy_and_for_compute_its_own) {
  MachineSpeeds machine = endless();
  machine.cores = 8;
  machine.compute_cores = 3;
  machine.copy_cores = 0.5;
  const std::map<Verb, double> expected = {{Verb::kSwapIn, 0},     {Verb::kSwapOut, 0}, {Verb::kUpload, 0.5},
                                           {Verb::kDownload, 0.5}, {Verb::kClose, 0.5}, {Verb::kCompute, 3},
                                           {Verb::kUpdate, 1},     {Verb::kVerify, 1},  {Verb::kSeal, 1},
                                           {Verb::kClip, 0},       {Verb::kCommit, 0}};
  std::set<Verb> seen;
  for (const auto& [hop, cost] : costs(machine)) {
    seen.insert(hop.verb);
    EXPECT_EQ(cost.cores, expected.at(hop.verb)) << name_of(hop.verb);
  }
  for (const Verb verb : {Verb::kUpload, Verb::kDownload, Verb::kClose, Verb::kCompute, Verb::kUpdate}) {
    EXPECT_TRUE(seen.contains(verb)) << name_of(verb);
  }
}

// Of two threads that share one core, and of one that has four.
TEST(CostsOfThreads, are_divided_among_as_many_as_have_a_core_and_each_has_a_second_update_in_hand) {
  MachineSpeeds machine = endless();
  LaneTimes work_ms{};
  work_ms[static_cast<size_t>(Lane::kUpdate)] = 12;
  for (const auto& [threads, cores, expected_ms] : {std::tuple(3, 1.0, 12.0), {3, 4.0, 4.0}, {1, 4.0, 12.0}}) {
    machine.update_threads = threads;
    machine.cores = cores;
    EXPECT_DOUBLE_EQ(group_times(work_ms, machine)[static_cast<size_t>(LaneGroup::kCpu)], expected_ms);
    const LaneModel updates = lane_models(machine)[static_cast<size_t>(Lane::kUpdate)];
    EXPECT_EQ(updates.served, threads);
    EXPECT_EQ(updates.in_flight, 2 * threads);
  }
}

class CostsOfUpdates : public Costs {
 protected:
  void plan_for(const Placement& placement, int commit_interval, UpdateMode update) {
    PlanOptions options = plan_.options;
    options.placement = placement;
    options.commit_interval = commit_interval;
    options.update = update;
    if (update == UpdateMode::kAuto) options.speculated_share = 0.6;
    plan_ = make_plan(model_, options);
  }
};

TEST_F(CostsOfUpdates, of_an_average_step_are_those_of_the_one_that_commits_and_of_the_others_each_for_its_part) {
  plan_for({.weights = {{HomeKind::kHost, 1}}, .state = {{HomeKind::kHost, 1}}}, 4, UpdateMode::kDeferred);
  MachineSpeeds machine = endless();
  machine.checksum_gb_per_s = 0.01;  // of commits alone
  machine.update_ns_per_element = 100;
  machine.commit_ms = 8;
  const UnitProgram unit = build_unit(model_, plan_, UnitKind::kTrain);
  const StepSpeeds speeds{machine, std::vector<VisitTime>(model_.visits.size())};
  const UnitCosts costs(plan_, speeds, unit, UnitKind::kTrain);
  const std::vector<double> average_ms = costs.average_work_ms();
  const auto &with = costs.of_step(Commits::kYes), &without = costs.of_step(Commits::kNo);
  int updates = 0, commits = 0;
  for (size_t i = 0; i < average_ms.size(); ++i) {
    const Verb verb = unit.program.hops()[i].verb;
    updates += verb == Verb::kUpdate ? 1 : 0;
    commits += verb == Verb::kCommit ? 1 : 0;
    if (verb == Verb::kUpdate) {
      EXPECT_GT(with[i].work_ms, without[i].work_ms);
    }
    const double wait_ms = verb == Verb::kCommit ? 8 : 0;  // the drives do nothing meanwhile
    EXPECT_NEAR(average_ms[i], (with[i].work_ms + wait_ms) / 4 + without[i].work_ms * 3 / 4, 1e-9) << name_of(verb);
  }
  EXPECT_GT(updates, 0);
  EXPECT_EQ(commits, 1);
}

// Where no GPU does them, the device's updates are those of host threads, whose records' sums the commit takes.
TEST_F(CostsOfUpdates, on_the_device_have_no_sums_and_those_to_another_slot_take_no_less_than_others) {
  MachineSpeeds machine = endless();
  machine.update_ns_per_element = 100;
  machine.checksum_gb_per_s = 1e-3;
  const auto expect_sweeps_alone = [&] {
    int updates = 0;
    for (const auto& [hop, cost] : costs(machine)) {
      if (hop.verb != Verb::kUpdate || (hop.when != When::kSpeculating && !plan_.chunks[hop.chunk].updated_on_device()))
        continue;
      ++updates;
      EXPECT_NEAR(cost.work_ms, static_cast<double>(plan_.geometry.chunks()[hop.chunk].elements) * 100 / 1e6, 1e-9);
    }
    EXPECT_GT(updates, 0);
  };
  plan_for({.state = {{HomeKind::kDevice, 1}}}, 1, UpdateMode::kDeferred);
  expect_sweeps_alone();
  plan_for({.weights = {{HomeKind::kHost, 1}}, .state = {{HomeKind::kHost, 1}}}, 4, UpdateMode::kAuto);
  ASSERT_FALSE(plan_.other_slots.empty());
  expect_sweeps_alone();  // out_of_place_ns_per_element has not been said
}

}  // namespace
}  // namespace sluice::testing
