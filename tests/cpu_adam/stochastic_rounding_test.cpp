// Moments in bf16: rounded by chance, right on average, a function of seed, step and element.
#include "core/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "core/half.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

TEST(StochasticRounding, takes_the_neighbour_above_as_often_as_the_low_half_says) {
  for (const uint32_t low : {0u, 1u, 0x1234u, 0x8000u, 0xffffu}) {
    for (const uint32_t high : {0x3f80u, 0xbf80u, 0x0000u, 0x8001u}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      uint32_t above = 0;
      for (uint32_t chance = 0; chance < 0x10000u; ++chance) {
        const uint16_t rounded = bf16_by_chance(value, chance);
        EXPECT_TRUE(rounded == high || rounded == high + 1);
        above += rounded == high + 1 ? 1 : 0;
      }
      EXPECT_EQ(above, low);
    }
  }
}

TEST(StochasticRounding, keeps_infinities_and_nans) {
  for (const uint32_t chance : {0u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(bf16_by_chance(INFINITY, chance), 0x7f80);
    EXPECT_EQ(bf16_by_chance(-INFINITY, chance), 0xff80);
    EXPECT_TRUE(std::isnan(float_of_bf16(bf16_by_chance(std::bit_cast<float>(0x7f800001u), chance))));
    EXPECT_TRUE(std::isnan(float_of_bf16(bf16_by_chance(std::bit_cast<float>(0xffffffffu), chance))));
  }
}

TEST(StochasticRounding, makes_no_finite_value_infinite) {
  for (const uint32_t chance : {0u, 0x8000u, 0xffffu}) {
    EXPECT_EQ(bf16_by_chance(std::numeric_limits<float>::max(), chance), 0x7f7f);
    EXPECT_EQ(bf16_by_chance(-std::numeric_limits<float>::max(), chance), 0xff7f);
  }
}

TEST(StochasticRounding, draws_evenly_and_anew_for_each_element_step_and_seed) {
  constexpr int64_t kDraws = 1 << 20;
  double low = 0, high = 0, product = 0;
  const uint32_t key = rounding_key(7, 3);
  for (int64_t i = 0; i < kDraws; ++i) {
    const uint32_t bits = rounding_bits(key, i);
    const double a = (bits & 0xffffu) / 65536.0 - 0.5, b = (bits >> 16) / 65536.0 - 0.5;
    low += a, high += b, product += a * b;
  }
  const double deviation = std::sqrt(1.0 / 12 / kDraws);  // of a mean
  EXPECT_LT(std::fabs(low / kDraws), 5 * deviation);
  EXPECT_LT(std::fabs(high / kDraws), 5 * deviation);
  EXPECT_LT(std::fabs(product / kDraws), 5 * deviation);
  std::set<uint32_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t t = 1; t <= 10; ++t) keys.insert(rounding_key(seed, t));
  }
  EXPECT_EQ(keys.size(), 100u);
}

// A run that is resumed by a later version rounds as it would have.
TEST(StochasticRounding, draws_the_same_in_every_version) {
  EXPECT_EQ(rounding_key(0, 1), 0xf8e4cca4u);
  EXPECT_EQ(rounding_key(42, 1000), 0xc7f39578u);
  EXPECT_EQ(rounding_bits(rounding_key(42, 1000), 123456789), 0x8fbe163fu);
}

// By rounding to nearest neither moment would ever move: each step adds less than half of its last bit.
TEST(StochasticRounding, lets_moments_drift_where_rounding_to_nearest_would_hold_them) {
  constexpr int64_t kMoments = 20'000;
  constexpr int kSteps = 200;
  const AdamFormat format{Precision::kFp32, DType::kFp32, DType::kBf16}, wide{Precision::kFp32, DType::kFp32};
  TestState halves(format, kMoments), floats(wide, kMoments);
  for (int64_t i = 0; i < kMoments; ++i) {
    halves.set(i, {1, 1, 1, 0.99f});
    floats.set(i, {1, 1, 1, 0.99f});
  }
  for (int64_t t = 1; t <= kSteps; ++t) {
    const AdamStep step = adam_step({.beta1 = 0.99, .beta2 = 0.999, .rounding_seed = 5}, t, 1.0);
    adam_scalar(format)(step, halves.planes(), kMoments);
    adam_scalar(wide)(step, floats.planes(), kMoments);
  }
  double m = 0, v = 0;
  for (int64_t i = 0; i < kMoments; ++i) m += halves.m(i), v += halves.v(i);
  ASSERT_LT(floats.m(0), 0.995);
  ASSERT_LT(floats.v(0), 0.998);
  EXPECT_NEAR(m / kMoments, floats.m(0), 3e-4);
  EXPECT_NEAR(v / kMoments, floats.v(0), 3e-4);
}

// What a range's elements draw depends on their numbers alone.
TEST(StochasticRounding, gives_the_same_bits_however_a_range_is_cut) {
  const AdamFormat format{Precision::kBf16, DType::kBf16, DType::kBf16};
  const AdamStep step = adam_step({.rounding_seed = 5}, 4, 0.5);
  TestState whole(format, 1000);
  fill(whole, Values::kOrdinary, 1);
  TestState cut = whole;
  adam_simd(format)(step, whole.planes(), 1000);
  for (int64_t first = 0, count = 1; first < 1000; first += count, count = count * 2 + 1) {
    adam_simd(format)(step, planes_at(cut.planes(), format, first), std::min(count, 1000 - first));
  }
  EXPECT_EQ(first_difference(whole, cut), -1);
}

}  // namespace
}  // namespace sluice
