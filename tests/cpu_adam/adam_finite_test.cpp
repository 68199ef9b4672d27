// What kernels say of weights that are too large for their type, though the fp32 master holds them.
#include <gtest/gtest.h>

#include <cmath>

#include "core/arena.h"
#include "cpu_adam/adam_out_of_place.h"
#include "cpu_adam/adam_sums.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

// Whole blocks, whole vectors and a rest, on every target.
constexpr int64_t kRange = 53;

// Leaves masters as they are.
AdamStep still_step(AdamKind kind) { return adam_step({.kind = kind, .learning_rate = 0, .weight_decay = 0}, 1, 1); }

// Elements at rest but for one master.
TestState state_with(AdamFormat format, int64_t at, float master) {
  TestState state(format, kRange);
  for (int64_t i = 0; i < kRange; ++i) state.set(i, {0.5f, 0.0f, 1.0f, 0.1f});
  state.set(at, {master, 0.0f, 1.0f, 0.1f});
  return state;
}

// Calls check(master, finite) for masters on either side of what the weights' type holds.
template <class Check>
void for_masters_at_the_end_of(Precision precision, const Check& check) {
  const float too_large = too_large_for(precision), largest = std::nextafter(too_large, 0.0f);
  for (const float master : {largest, -largest}) check(master, Finite::kYes);
  for (const float master : {too_large, -too_large}) check(master, Finite::kNo);
}

TEST(AdamScalar, says_of_a_master_whose_weight_is_infinite_that_it_is_not_finite) {
  for (const AdamFormat format : all_formats_and_moments()) {
    for (const AdamKind kind : all_kinds()) {
      for_masters_at_the_end_of(format.precision, [&](float master, Finite expected) {
        TestState state = state_with(format, 7, master);
        EXPECT_EQ(adam_scalar(format)(still_step(kind), state.planes(), kRange), expected) << master;
        EXPECT_EQ(std::isfinite(state.weight(7)), expected == Finite::kYes) << master;
      });
    }
  }
}

class FiniteOnTarget : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Runnable, FiniteOnTarget, testing::ValuesIn(adam_simd_targets()),
                         [](const auto& target) { return std::string(target.param); });

TEST_P(FiniteOnTarget, says_what_the_reference_says_of_a_weight_too_large_for_its_type_wherever_it_lies) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    const SummingAdamKernel summing = summing_adam_simd_for(format, GetParam());
    for (const AdamKind kind : all_kinds()) {
      const AdamStep step = still_step(kind);
      for (int64_t at = 0; at < kRange; ++at) {
        for_masters_at_the_end_of(format.precision, [&](float master, Finite expected) {
          TestState state = state_with(format, at, master);
          EXPECT_EQ(kernel(step, state.planes(), kRange), expected) << master << " at " << at;
          uint32_t sum = 0;
          EXPECT_EQ(summing(step, state.planes(), kRange, {.weights_out = &sum}), expected) << master << " at " << at;
        });
      }
    }
  }
}

// Records on pages of their own: whole lines are there to be written past the caches.
TEST_P(FiniteOnTarget, says_so_out_of_place_as_well) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const RecordLayout layout =
        record_layout({format.precision, Optimizer::kAdam, format.moments}, Group::kState, kRange);
    const Arena weights(kRange * 4), state(layout.bytes);
    const AdamPlanes to = planes_of_records(format, {layout, weights.at(0), state.at(0), nullptr});
    for (int64_t at = 0; at < kRange; ++at) {
      for_masters_at_the_end_of(format.precision, [&](float master, Finite expected) {
        TestState from = state_with(format, at, master);
        const OutOfPlaceAdamKernel kernel = out_of_place_adam_simd_for(format, GetParam());
        EXPECT_EQ(kernel(still_step(AdamKind::kAdamW), from.planes(), to, kRange), expected) << master << " at " << at;
      });
    }
  }
}

}  // namespace
}  // namespace sluice
