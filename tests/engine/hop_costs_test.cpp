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

}  // namespace
}  // namespace sluice::testing
