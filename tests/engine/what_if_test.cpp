// What other resources would do to a step: on machines in which one thing alone takes time.
#include "engine/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/bytes.h"
#include "engine/predict.h"
#include "swap/record_store.h"
#include "tests/engine/machines.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

class WhatIf : public ::testing::Test {
 protected:
  WhatIf() {
    options_.device_bytes = 8 * kMiB;
    options_.host_bytes = 300 * kKiB;  // a part of the state has its home on NVMe
    options_.workspace_bytes = 4096;
    options_.micro_batches = 2;
    options_.chunk_elements = 1024;
    options_.commit_interval = 1;
    options_.speeds = StepSpeeds{slow_drive(), std::vector<VisitTime>(model_.visits.size())};
  }
  static MachineSpeeds slow_drive() {
    MachineSpeeds machine = endless();
    set_drives(machine, 0.001);
    return machine;
  }
  double step_ms(const Resources& resources) const {
    const PlanOptions changed = with_resources(options_, resources);
    return predict(model_, make_plan(model_, changed), *changed.speeds).step_ms;
  }
  std::vector<Offer> offers() const { return what_would_help(model_, options_, make_plan(model_, options_)); }
  static const Offer& find(const std::vector<Offer>& offers, Offer::Raised raised) {
    return *std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) { return offer.raised == raised; });
  }

  ModelSpec model_ = toy_model({.visits = 6, .elements = 6000}, Precision::kBf16);
  PlanOptions options_;
};

TEST_F(WhatIf, twice_the_drives_take_half_the_time_where_the_drive_binds) {
  // The second drive's queue takes host memory too: homes that are named stay where they are.
  options_.host_bytes = kMiB;
  options_.placement.weights = options_.placement.gradient = {{HomeKind::kHost, 1}};
  options_.placement.state = {{HomeKind::kNvme, 1}};
  Resources resources = resources_of(options_);
  const double present_ms = step_ms(resources);
  resources.drives = 2;
  EXPECT_NEAR(step_ms(resources), present_ms / 2, present_ms * 0.001);
}

TEST_F(WhatIf, drives_are_as_fast_as_those_that_are_there) {
  options_.drives = 2;
  Resources resources = resources_of(options_);
  resources.drives = 5;
  const MachineSpeeds& present = options_.speeds->machine;
  const MachineSpeeds more = with_resources(options_, resources).speeds->machine;
  EXPECT_DOUBLE_EQ(more.read_gb_per_s, 2.5 * present.read_gb_per_s);
  EXPECT_DOUBLE_EQ(more.write_gb_per_s, 2.5 * present.write_gb_per_s);
  EXPECT_DOUBLE_EQ(more.mixed_gb_per_s, 2.5 * present.mixed_gb_per_s);
}

// More host memory would have larger chunks in a plan that is made anew.
TEST_F(WhatIf, offers_keep_the_chunks_that_there_are) {
  options_.chunk_elements = 0;
  const Plan plan = make_plan(model_, options_);
  PlanOptions anew = with_resources(options_, {.device_bytes = options_.device_bytes,
                                               .host_bytes = 2 * options_.host_bytes,
                                               .micro_batches = options_.micro_batches});
  ASSERT_NE(make_plan(model_, anew).geometry.chunk_elements(), plan.geometry.chunk_elements());
  anew.chunk_elements = plan.geometry.chunk_elements();
  const std::vector<Offer> all = offers();
  EXPECT_EQ(find(all, Offer::Raised::kHostMemory).step_ms, make_plan(model_, anew).busiest.value().step_ms);
}

TEST_F(WhatIf, the_same_resources_change_nothing) {
  EXPECT_EQ(step_ms(resources_of(options_)), predict(model_, make_plan(model_, options_), *options_.speeds).step_ms);
}

TEST_F(WhatIf, offers_are_what_the_plan_with_that_resource_is_predicted_to_take) {
  const std::vector<Offer> all = offers();
  ASSERT_EQ(all.size(), 4u);
  for (const Offer& offer : all) {
    ASSERT_TRUE(offer.step_ms);
    EXPECT_EQ(*offer.step_ms, step_ms(offer.resources));
  }
  EXPECT_EQ(find(all, Offer::Raised::kHostMemory).resources.host_bytes, 2 * options_.host_bytes);
  EXPECT_EQ(find(all, Offer::Raised::kDeviceMemory).resources.device_bytes, 2 * options_.device_bytes);
  EXPECT_EQ(find(all, Offer::Raised::kDrives).resources.drives, 2);
  EXPECT_EQ(find(all, Offer::Raised::kTokens).resources.micro_batches, 4);
}

// Of many micro-batches they are predicted with fewer, larger ones.
TEST_F(WhatIf, offers_for_many_micro_batches_are_near_what_the_plan_is_predicted_to_take) {
  options_.micro_batches = 40;
  options_.host_bytes = 2 * kMiB;
  for (VisitTime& visit : options_.speeds->visits) visit = {.forward_ms = 0.1, .backward_ms = 0.3};
  for (const Offer& offer : offers()) {
    ASSERT_TRUE(offer.step_ms);
    EXPECT_NEAR(*offer.step_ms, step_ms(offer.resources), 0.05 * step_ms(offer.resources));
    EXPECT_NEAR(offer.micro_batches_per_s, offer.resources.micro_batches / *offer.step_ms * 1e3, 1e-9);
  }
}

TEST_F(WhatIf, no_drive_is_offered_beyond_those_that_a_store_can_have) {
  options_.drives = kMaxDrives;
  options_.host_bytes = 4 * kMiB;
  const std::vector<Offer> all = offers();
  EXPECT_EQ(all.size(), 3u);
  for (const Offer& offer : all) EXPECT_NE(offer.raised, Offer::Raised::kDrives);
}

TEST_F(WhatIf, what_helps_most_comes_first) {
  const std::vector<Offer> all = offers();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const Offer& a, const Offer& b) {
    return a.micro_batches_per_s > b.micro_batches_per_s;
  }));
  // Device memory is enough already; the drive's work does not grow with the tokens.
  EXPECT_EQ(all.back().raised, Offer::Raised::kDeviceMemory);
  const Offer& tokens = find(all, Offer::Raised::kTokens);
  EXPECT_NEAR(tokens.micro_batches_per_s, 4 / *tokens.step_ms * 1e3, 1e-9);
}

// The more tensors there are, the less memory they leave to records: homes as they are say too little.
TEST_F(WhatIf, compute_binds_in_plans_for_more_than_the_critical_batch_and_for_less_it_does_not) {
  options_.placement.activations = {{HomeKind::kHost, 1}};
  options_.host_bytes = 620 * kKiB;
  options_.device_bytes = 256 * kKiB;
  set_drives(options_.speeds->machine, 0.02);
  for (VisitTime& visit : options_.speeds->visits) visit = {.forward_ms = 0.05, .backward_ms = 0.15};
  const auto predicted = [&](int micro_batches) {
    PlanOptions options = options_;
    options.micro_batches = micro_batches;
    return predict(model_, make_plan(model_, options), *options.speeds);
  };
  const double critical =
      predict_with_critical_batch(model_, options_, make_plan(model_, options_)).critical_micro_batches.value();
  EXPECT_GT(critical, 1.5 * predicted(options_.micro_batches).critical_micro_batches.value());
  EXPECT_EQ(predicted(static_cast<int>(critical)).binding, LaneGroup::kNvme);
  EXPECT_EQ(predicted(static_cast<int>(critical) + 1).binding, LaneGroup::kCompute);
}

class WhatIfOnADeviceOf128KiB : public WhatIf {
 protected:
  WhatIfOnADeviceOf128KiB() {
    options_.placement.activations = {{HomeKind::kDevice, 1}};
    options_.device_bytes = 128 * kKiB;
    options_.chunk_elements = 0;
    set_drives(options_.speeds->machine, 0.02);
    for (VisitTime& visit : options_.speeds->visits) visit = {.forward_ms = 0.05, .backward_ms = 0.15};
  }
  std::optional<Plan> with(int micro_batches, int64_t chunk_elements) const {
    PlanOptions options = options_;
    options.micro_batches = micro_batches;
    options.chunk_elements = chunk_elements;
    return find_plan(model_, options);
  }
};

// Homes of more micro-batches are better than those that the estimate starts from.
TEST_F(WhatIfOnADeviceOf128KiB, compute_binds_with_the_least_number_above_the_critical_batch) {
  options_.host_bytes = 380 * kKiB;
  const Plan plan = make_plan(model_, options_);
  const double critical = predict_with_critical_batch(model_, options_, plan).critical_micro_batches.value();
  const auto binding = [&](int micro_batches) {
    const auto changed = with(micro_batches, plan.geometry.chunk_elements());
    return predict(model_, changed.value(), *options_.speeds).binding;
  };
  EXPECT_EQ(binding(static_cast<int>(critical)), LaneGroup::kNvme);
  EXPECT_EQ(binding(static_cast<int>(critical) + 1), LaneGroup::kCompute);
}

TEST_F(WhatIfOnADeviceOf128KiB, compute_binds_with_no_number_that_the_chunks_which_there_are_leave_room_for) {
  options_.host_bytes = 300 * kKiB;
  const Plan plan = make_plan(model_, options_);
  const int more = static_cast<int>(predict(model_, plan, *options_.speeds).critical_micro_batches.value()) + 1;
  ASSERT_FALSE(with(more, plan.geometry.chunk_elements()));
  ASSERT_TRUE(with(more, 0));
  EXPECT_FALSE(predict_with_critical_batch(model_, options_, plan).critical_micro_batches);
}

TEST_F(WhatIf, where_compute_binds_the_critical_batch_is_that_of_the_plan_and_a_clipped_step_is_told) {
  options_.update = UpdateMode::kAuto;
  options_.speculated_share = 0.6;
  options_.host_bytes = 4 * kMiB;
  set_drives(options_.speeds->machine, 0.02);
  for (VisitTime& visit : options_.speeds->visits) visit = {.forward_ms = 5, .backward_ms = 15};
  const Plan plan = make_plan(model_, options_);
  const Prediction alone = predict(model_, plan, *options_.speeds);
  ASSERT_EQ(alone.binding, LaneGroup::kCompute);
  const Prediction whole = predict_with_critical_batch(model_, options_, plan);
  EXPECT_EQ(whole.critical_micro_batches, alone.critical_micro_batches);
  ASSERT_TRUE(whole.clipped_ms);
  EXPECT_EQ(whole.clipped_ms, clipped_step_ms(model_, plan, *options_.speeds));
}

TEST_F(WhatIf, compute_binds_with_no_number_of_micro_batches_where_the_budgets_hold_too_few) {
  options_.placement.activations = {{HomeKind::kDevice, 1}};
  options_.host_bytes = 4 * kMiB;
  options_.device_bytes = 8 * kKiB;
  while (!find_plan(model_, options_)) options_.device_bytes += 4096;
  for (VisitTime& visit : options_.speeds->visits) visit = {.forward_ms = 0.05, .backward_ms = 0.15};
  options_.placement.state = {{HomeKind::kNvme, 1}};
  const Plan plan = make_plan(model_, options_);
  EXPECT_TRUE(predict(model_, plan, *options_.speeds).critical_micro_batches);
  EXPECT_FALSE(predict_with_critical_batch(model_, options_, plan).critical_micro_batches);
}

TEST_F(WhatIf, more_tokens_than_fit_are_no_offer) {
  options_.placement.activations = {{HomeKind::kDevice, 1}};
  options_.device_bytes = 8 * kKiB;
  options_.micro_batches = 16;
  options_.host_bytes = 4 * kMiB;
  while (!find_plan(model_, options_)) options_.device_bytes += 4096;
  const Offer tokens = find(offers(), Offer::Raised::kTokens);
  EXPECT_FALSE(tokens.step_ms);
  EXPECT_EQ(tokens.micro_batches_per_s, 0);
}

}  // namespace
}  // namespace sluice::testing
