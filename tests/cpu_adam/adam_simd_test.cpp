// Every SIMD target this CPU can run gives the bits of the scalar reference.
#include <gtest/gtest.h>

#include <cmath>

#include "core/errors.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

// A sanitizer's runs take ten times as long: a sample.
constexpr int64_t kStride = SLUICE_IS_SANITIZED ? 23 : 1;

AdamStep step_of(AdamKind kind) {
  const AdamOptions options{
      .kind = kind, .learning_rate = 3e-4, .beta2 = 0.95, .weight_decay = 0.1, .momentum = 0.9, .rounding_seed = 3};
  return adam_step(options, 7, 0.37);
}

std::string describe(AdamFormat format) {
  return std::string(name_of(format.precision)) + " with gradients in " + std::string(name_of(format.gradient)) +
         " and moments in " + std::string(name_of(format.moments));
}

// Runs both kernels on the same values at the same misalignment and compares planes, flag and guards.
void expect_same_bits(AdamFormat format, AdamKernel kernel, TestState& state, const AdamStep& step) {
  TestState reference = state;
  const Finite expected = adam_scalar(format)(step, reference.planes(), reference.elements);
  const Finite finite = kernel(step, state.planes(), state.elements);
  EXPECT_EQ(finite, expected);
  const int64_t different = first_difference(state, reference);
  ASSERT_EQ(different, -1) << "p " << state.master(different) << " instead of " << reference.master(different) << ", m "
                           << state.m(different) << " instead of " << reference.m(different) << ", v "
                           << state.v(different) << " instead of " << reference.v(different);
  ASSERT_TRUE(state.guards_intact()) << "written outside of the range";
}

class AdamTarget : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Runnable, AdamTarget, testing::ValuesIn(adam_simd_targets()),
                         [](const auto& target) { return std::string(target.param); });

// Every pair of a length and a misalignment; formats and kinds take turns.
TEST_P(AdamTarget, gives_the_bits_of_the_reference_at_every_length_with_every_misalignment) {
  const std::vector<AdamFormat> formats = all_formats_and_moments();
  const auto kinds = all_kinds();
  size_t turn = 0;
  for (int64_t elements = 0; elements <= 257; ++elements) {
    for (int64_t offset = 0; offset < 32; ++offset, ++turn) {
      const AdamFormat format = formats[turn % formats.size()];
      const AdamStep step = step_of(kinds[turn / formats.size() % kinds.size()]);
      SCOPED_TRACE(describe(format) + ", elements: " + std::to_string(elements) +
                   ", offset: " + std::to_string(offset));
      TestState state(format, elements, {.offset = offset, .skew = static_cast<int64_t>(turn % 7)});
      fill(state, Values::kAnyPattern, turn);
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, adam_simd_for(format, GetParam()), state, step));
    }
  }
}

TEST_P(AdamTarget, gives_the_bits_of_the_reference_at_every_length_in_every_format) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    ASSERT_NE(kernel, nullptr);
    for (const AdamKind kind : all_kinds()) {
      for (int64_t elements = 0; elements <= 257; ++elements) {
        SCOPED_TRACE(describe(format) + ", elements: " + std::to_string(elements));
        TestState state(format, elements, {.offset = elements % 8});
        fill(state, Values::kOrdinary, static_cast<uint64_t>(elements));
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, kernel, state, step_of(kind)));
      }
    }
  }
}

TEST_P(AdamTarget, gives_the_bits_of_the_reference_at_every_offset_from_an_aligned_address) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    for (const AdamKind kind : all_kinds()) {
      for (int64_t offset = 0; offset < 32; ++offset) {
        for (const int64_t skew : {0, 5}) {
          SCOPED_TRACE(describe(format) + ", offset: " + std::to_string(offset) + ", skew: " + std::to_string(skew));
          TestState state(format, 67, {.offset = offset, .skew = skew});
          fill(state, Values::kAnyPattern, static_cast<uint64_t>(offset));
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, kernel, state, step_of(kind)));
        }
      }
    }
  }
}

// p, m, v and g each with every value in turn: no two edges meet unseen.
TEST_P(AdamTarget, gives_the_bits_of_the_reference_on_every_combination_of_special_values) {
  constexpr int64_t n = std::size(kEdges);
  for (const AdamFormat format : all_formats_and_moments()) {
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    TestState all(format, n * n * n * n / kStride);
    for (int64_t i = 0; i < all.elements; ++i) {
      const auto edge = [at = i * kStride](int64_t below) { return std::bit_cast<float>(kEdges[at / below % n]); };
      all.set(i, {edge(1), edge(n), edge(n * n), edge(n * n * n)});
    }
    for (const AdamKind kind : all_kinds()) {
      SCOPED_TRACE(describe(format) + ", kind " + std::to_string(static_cast<int>(kind)));
      TestState state = all;
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, kernel, state, step_of(kind)));
    }
  }
}

TEST_P(AdamTarget, gives_the_bits_of_the_reference_on_infinities_nans_and_subnormals) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    for (const AdamKind kind : all_kinds()) {
      SCOPED_TRACE(describe(format));
      TestState state(format, 30'011, {.offset = 1});
      fill(state, Values::kAnyPattern, 11);
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, kernel, state, step_of(kind)));
    }
  }
}

TEST_P(AdamTarget, keeps_the_bits_of_the_reference_over_several_steps_of_millions_of_elements) {
  constexpr int64_t kLongest = SLUICE_IS_SANITIZED ? 40'007 : 300'007;  // more would only take a sanitizer time
  for (const AdamFormat format : all_formats_and_moments()) {
    SCOPED_TRACE(describe(format));
    const AdamKernel kernel = adam_simd_for(format, GetParam());
    TestState state(format, kLongest, {.offset = 3});
    fill(state, Values::kOrdinary, 5);
    for (const AdamKind kind : all_kinds()) {
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, kernel, state, step_of(kind)));
    }
  }
}

// Away from the minimum, by a rate below zero.
TEST_P(AdamTarget, gives_the_bits_of_the_reference_at_a_negative_rate) {
  for (const AdamFormat format : all_formats_and_moments()) {
    for (const AdamKind kind : all_kinds()) {
      SCOPED_TRACE(describe(format) + ", kind " + std::to_string(static_cast<int>(kind)));
      TestState state(format, 67);
      fill(state, Values::kOrdinary, 3);
      const AdamStep step = adam_step({.kind = kind, .learning_rate = -3e-4, .momentum = 0.9}, 7, 0.37);
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(format, adam_simd_for(format, GetParam()), state, step));
    }
  }
}

TEST_P(AdamTarget, reports_one_non_finite_element_wherever_it_lies) {
  const AdamFormat format{Precision::kBf16, DType::kFp32};
  const AdamKernel kernel = adam_simd_for(format, GetParam());
  const float infinity = std::numeric_limits<float>::infinity();
  for (const AdamKind kind : all_kinds()) {
    const bool two_moments = moments_of(optimizer_of(kind)) == 2;
    for (int64_t at = 0; at < 37; ++at) {
      for (int plane = 0; plane < 4; ++plane) {
        TestState state(format, 37);
        fill(state, Values::kOrdinary, 3);
        const auto value = [&](int which, float ordinary) { return which == plane ? infinity : ordinary; };
        for (int64_t i = 0; i < 37; ++i) state.moment1.set(i, std::fabs(state.moment1.get(i)));  // Adagrad's is a sum
        state.set(at, {value(0, 0.5f), value(1, 0.0f), value(2, 1.0f), value(3, 0.1f)});
        const Finite expected = plane == 2 && !two_moments ? Finite::kYes : Finite::kNo;
        EXPECT_EQ(kernel(step_of(kind), state.planes(), 37), expected) << at << " " << plane;
      }
    }
  }
}

TEST(AdamSimd, chooses_the_first_of_its_targets) {
  ASSERT_FALSE(adam_simd_targets().empty());
  for (const AdamFormat format : all_formats_and_moments()) {
    EXPECT_EQ(adam_simd(format), adam_simd_for(format, adam_simd_targets().front()));
  }
}

TEST(AdamSimd, has_no_kernel_of_an_unknown_target) {
  EXPECT_EQ(adam_simd_for({Precision::kBf16, DType::kBf16}, "ABACUS"), nullptr);
}

TEST(AdamSimd, refuses_a_gradient_of_neither_fp32_nor_the_weights_type) {
  EXPECT_THROW(adam_simd({Precision::kBf16, DType::kFp16}), std::logic_error);
  EXPECT_THROW(adam_scalar({Precision::kFp32, DType::kBf16}), std::logic_error);
}

}  // namespace
}  // namespace sluice
