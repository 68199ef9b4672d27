#include <gtest/gtest.h>

#include <cmath>

#include "cpu_adam/adam.h"

namespace sluice {
namespace {

TEST(AdamStep, takes_bias_corrections_from_the_number_of_the_step) {
  const AdamOptions options{.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 1e-6, .weight_decay = 0.25};
  const AdamStep first = adam_step(options, 1, 1.0);
  EXPECT_EQ(first.step_size, 1.0f);    // 0.5 / (1 - 0.5)
  EXPECT_EQ(first.correction2, 0.5f);  // sqrt(1 - 0.75)
  const AdamStep second = adam_step(options, 2, 1.0);
  EXPECT_EQ(second.step_size, static_cast<float>(0.5 / 0.75));
  EXPECT_EQ(second.correction2, static_cast<float>(std::sqrt(0.4375)));
}

TEST(AdamStep, carries_every_option) {
  const AdamOptions options{.kind = AdamKind::kAdam,
                            .learning_rate = 0.5,
                            .beta1 = 0.5,
                            .beta2 = 0.75,
                            .epsilon = 1e-6,
                            .weight_decay = 0.25};
  const AdamStep step = adam_step(options, 1, 0.125);
  EXPECT_EQ(step.kind, AdamKind::kAdam);
  EXPECT_EQ(step.scale, 0.125f);
  EXPECT_EQ(step.decay, 0.875f);
  EXPECT_EQ(step.weight_decay, 0.25f);
  EXPECT_EQ(step.one_minus_beta1, 0.5f);
  EXPECT_EQ(step.beta2, 0.75f);
  EXPECT_EQ(step.one_minus_beta2, 0.25f);
  EXPECT_EQ(step.epsilon, 1e-6f);
}

TEST(AdamStep, rounds_once_from_double) {
  const AdamStep step = adam_step({.beta2 = 0.999}, 1, 1.0 / 3.0);
  EXPECT_EQ(step.scale, static_cast<float>(1.0 / 3.0));
  EXPECT_EQ(step.one_minus_beta2, static_cast<float>(1.0 - 0.999));
  EXPECT_NE(step.one_minus_beta2, 1.0f - 0.999f);  // what rounding beta2 first would give
}

TEST(AdamStep, approaches_no_correction) {
  const AdamStep step = adam_step({}, 1'000'000, 1.0);
  EXPECT_EQ(step.correction2, 1.0f);
  EXPECT_EQ(step.step_size, 1e-3f);
}

TEST(AdamStep, starts_at_one) { EXPECT_THROW(adam_step({}, 0, 1.0), std::logic_error); }

}  // namespace
}  // namespace sluice
