// The scalar reference against the recurrence written once more, each operation in a wider type and rounded to fp32:
// fp64 rounds +, -, *, / and sqrt of fp32 correctly in two roundings (53 >= 2 * 24 + 2 bits), 113 bits do so for fma.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

float add(double a, double b) { return static_cast<float>(a + b); }
float multiply(double a, double b) { return static_cast<float>(a * b); }
float divide(double a, double b) { return static_cast<float>(a / b); }
float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<__float128>(a) * static_cast<__float128>(b) + static_cast<__float128>(c));
}

struct Element {
  float p, m, v;
};

Element updated(const AdamStep& step, Element e, float gradient) {
  float g = multiply(gradient, step.scale);
  if (step.kind == AdamKind::kAdamW) {
    e.p = multiply(e.p, step.decay);
  } else {
    g = fused(step.weight_decay, e.p, g);
  }
  e.m = fused(step.one_minus_beta1, add(g, -e.m), e.m);
  e.v = fused(step.one_minus_beta2, multiply(g, g), multiply(step.beta2, e.v));
  const float root = static_cast<float>(std::sqrt(static_cast<double>(e.v)));
  const float denominator = add(divide(root, step.correction2), step.epsilon);
  e.p = add(e.p, -divide(multiply(step.step_size, e.m), denominator));
  return e;
}

void expect_the_oracle(AdamFormat format, AdamKind kind) {
  const AdamOptions options{.kind = kind, .learning_rate = 1e-3, .weight_decay = 0.05};
  TestState state(format, 20'000);
  fill(state, Values::kOrdinary, 17);
  for (int64_t t = 1; t <= 3; ++t) {
    const AdamStep step = adam_step(options, t, 0.77);
    std::vector<Element> expected;
    for (int64_t i = 0; i < state.elements; ++i) {
      expected.push_back(
          updated(step, {state.master(i), state.moment1.get(i), state.moment2.get(i)}, state.gradient(i)));
    }
    ASSERT_EQ(adam_scalar(format)(step, state.planes(), state.elements), Finite::kYes);
    for (int64_t i = 0; i < state.elements; ++i) {
      const Element& e = expected[static_cast<size_t>(i)];
      ASSERT_EQ(std::bit_cast<uint32_t>(state.master(i)), std::bit_cast<uint32_t>(e.p)) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(state.moment1.get(i)), std::bit_cast<uint32_t>(e.m)) << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(state.moment2.get(i)), std::bit_cast<uint32_t>(e.v)) << i;
      if (format.precision == Precision::kFp16) {
        ASSERT_EQ(state.halves.get(i), fp16_of_float(e.p)) << i;
      }
    }
  }
}

TEST(AdamScalar, rounds_every_operation_of_adamw_once_in_the_order_written) {
  for (const AdamFormat format : all_formats()) ASSERT_NO_FATAL_FAILURE(expect_the_oracle(format, AdamKind::kAdamW));
}

TEST(AdamScalar, rounds_every_operation_of_adam_with_l2_once_in_the_order_written) {
  for (const AdamFormat format : all_formats()) ASSERT_NO_FATAL_FAILURE(expect_the_oracle(format, AdamKind::kAdam));
}

Element updated_by_one_moment(const AdamStep& step, Element e, float gradient) {
  float g = multiply(gradient, step.scale);
  if (step.kind == AdamKind::kLion) {
    const float c = fused(step.one_minus_beta1, add(g, -e.m), e.m);
    e.p = add(multiply(e.p, step.decay), c > 0 ? -step.step_size : c < 0 ? step.step_size : 0.0f);
    e.m = fused(step.one_minus_beta2, add(g, -e.m), e.m);
    return e;
  }
  g = fused(step.weight_decay, e.p, g);
  if (step.kind == AdamKind::kAdagrad) {
    e.m = fused(g, g, e.m);
    const float root = static_cast<float>(std::sqrt(static_cast<double>(e.m)));
    e.p = add(e.p, -divide(multiply(step.step_size, g), add(root, step.epsilon)));
  } else {
    e.m = fused(step.momentum, e.m, g);
    e.p = add(e.p, -multiply(step.step_size, e.m));
  }
  return e;
}

void expect_the_oracle_of_one_moment(const AdamOptions& options) {
  for (const AdamFormat format : all_formats()) {
    TestState state(format, 5'000);
    fill(state, Values::kOrdinary, 17);
    // A sum of squares for Adagrad is not below zero.
    for (int64_t i = 0; i < state.elements; ++i) state.moment1.set(i, std::fabs(state.moment1.get(i)));
    for (int64_t t = 1; t <= 3; ++t) {
      const AdamStep step = adam_step(options, t, 0.77);
      std::vector<Element> expected;
      for (int64_t i = 0; i < state.elements; ++i) {
        expected.push_back(updated_by_one_moment(step, {state.master(i), state.moment1.get(i), 0}, state.gradient(i)));
      }
      AdamPlanes planes = state.planes();
      planes.moment2 = nullptr;
      ASSERT_EQ(adam_scalar(format)(step, planes, state.elements), Finite::kYes);
      for (int64_t i = 0; i < state.elements; ++i) {
        const Element& e = expected[static_cast<size_t>(i)];
        ASSERT_EQ(std::bit_cast<uint32_t>(state.master(i)), std::bit_cast<uint32_t>(e.p)) << i;
        ASSERT_EQ(std::bit_cast<uint32_t>(state.moment1.get(i)), std::bit_cast<uint32_t>(e.m)) << i;
      }
    }
  }
}

TEST(AdamScalar, rounds_every_operation_of_kinds_with_one_moment_once_and_touches_no_second) {
  for (const AdamKind kind : {AdamKind::kAdagrad, AdamKind::kLion, AdamKind::kSgd}) {
    for (const double learning_rate : {1e-3, -1e-3}) {
      ASSERT_NO_FATAL_FAILURE(expect_the_oracle_of_one_moment(
          {.kind = kind, .learning_rate = learning_rate, .weight_decay = 0.05, .momentum = 0.9}));
    }
  }
}

}  // namespace
}  // namespace sluice
