// Small models, random machines and scarce memory, for tests of how homes are chosen.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/bytes.h"
#include "engine/home_prices.h"
#include "engine/planner.h"
#include "engine/predict.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {

// Partitions of two chunks each.
inline ModelSpec small_model(int visits = 4) {
  ModelSpec model = toy_model({.visits = visits, .tensor_elements = 4096}, Precision::kBf16);
  for (size_t p = 0; p < model.partitions.size(); ++p) {
    model.partitions[p].parameters = {{model.partitions[p].parameters[0].name, {4096}}};
  }
  return model;
}

inline StepSpeeds random_speeds(const ModelSpec& model, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto around = [&random](double middle) {  // up to ten times more or less
    return middle * std::pow(10, std::uniform_real_distribution<double>(-1, 1)(random));
  };
  MachineSpeeds machine{.read_gb_per_s = around(0.01),
                        .write_gb_per_s = around(0.01),
                        .mixed_gb_per_s = around(0.01),
                        .upload_gb_per_s = around(0.01),
                        .download_gb_per_s = around(0.01),
                        .update_ns_per_element = around(100),
                        .checksum_gb_per_s = around(0.03),
                        .close_gb_per_s = 1,
                        .commit_ms = 0.1,
                        .update_threads = 2,
                        .cores = 2};
  return {machine, std::vector<VisitTime>(model.visits.size(), {.forward_ms = 0.1, .backward_ms = 0.3})};
}

inline double longest_ms(const GroupTimes& times) { return times[static_cast<size_t>(longest(times))]; }

class Homes : public ::testing::Test {
 protected:
  PlanOptions options(uint64_t seed) const {
    PlanOptions options{.device_bytes = 8 * kMiB,
                        .host_bytes = 16 * kMiB,
                        .workspace_bytes = 4096,
                        .micro_batches = 1,
                        .chunk_elements = 2048,
                        .commit_interval = 1,
                        .update = UpdateMode::kDeferred};
    options.speeds = random_speeds(model_, seed);
    return options;
  }
  // Somewhere between the smallest budgets and twice that.
  void make_scarce(PlanOptions& options, uint64_t seed) const {
    const Planner planner(model_, options);
    std::mt19937_64 random(seed);
    const auto scarce = [&random](int64_t least) {
      return static_cast<int64_t>(static_cast<double>(least) * std::uniform_real_distribution<double>(1, 2)(random));
    };
    options.device_bytes = scarce(planner.smallest_device(options.host_bytes).value());
    options.host_bytes = scarce(planner.smallest_host(options.device_bytes).value());
  }
  LaneTimes work_of(const Plan& plan) const {
    const UnitKind kind = unclipped_kind(plan);
    const UnitProgram unit = build_unit(model_, plan, kind);
    const std::vector<double> work_ms = UnitCosts(plan, *plan.options.speeds, unit, kind).average_work_ms();
    LaneTimes sum{};
    for (size_t i = 0; i < work_ms.size(); ++i) sum[static_cast<size_t>(unit.program.hops()[i].lane())] += work_ms[i];
    return sum;
  }
  GroupTimes times_of(const Plan& plan) const { return group_times(work_of(plan), plan.options.speeds->machine); }

  // One plan, nothing searched for; nothing where the budgets are too small.
  std::optional<Plan> planned(const PlanOptions& options, const Pricing& pricing = {}) const {
    auto made = Planner(model_, options).attempt({options.device_bytes, options.host_bytes}, pricing);
    return made ? std::optional(std::move(made->plan)) : std::nullopt;
  }
  struct Both {
    Plan order, speeds;
  };
  std::optional<Both> both(const PlanOptions& options) const {
    const HomePrices prices = price_homes(model_, options, 1);
    std::optional<Plan> order = planned(options), speeds = planned(options, {.prices = &prices});
    EXPECT_EQ(order.has_value(), speeds.has_value());
    if (!order || speeds->homes_by != HomesBy::kSpeeds) return std::nullopt;
    return Both{std::move(*order), std::move(*speeds)};
  }

  ModelSpec model_ = small_model();
};

}  // namespace sluice::testing
