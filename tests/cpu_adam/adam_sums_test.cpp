// Kernels that sum on their way: the plain kernel's bits and core/checksum.h's sums, on every target.
#include "cpu_adam/adam_sums.h"

#include <gtest/gtest.h>

#include <array>

#include "core/checksum.h"
#include "tests/cpu_adam/adam_planes.h"

namespace sluice {
namespace {

constexpr uint32_t kSeed = 0x12345678u;

AdamStep sum_step_of(AdamKind kind) { return adam_step({.kind = kind, .momentum = 0.9, .rounding_seed = 3}, 7, 0.37); }

// One of each plane that can be summed; what no sum went to keeps the seed.
struct Found {
  uint32_t weights_in = kSeed, gradient_in = kSeed, weights_out = kSeed;
  std::array<uint32_t, kMaxPlanes> state_in = {kSeed, kSeed, kSeed}, state_out = state_in;
  bool operator==(const Found&) const = default;

  // Bit by bit of `which`: weights_in, state_in, gradient_in, weights_out, state_out.
  AdamSums sums(unsigned which) {
    return {.weights_in = which & 1 ? &weights_in : nullptr,
            .state_in = which & 2 ? state_in.data() : nullptr,
            .gradient_in = which & 4 ? &gradient_in : nullptr,
            .weights_out = which & 8 ? &weights_out : nullptr,
            .state_out = which & 16 ? state_out.data() : nullptr};
  }
};
constexpr unsigned kAll = 31;

uint32_t sum_of(const void* plane, int64_t bytes) {
  return crc32c(kSeed, {static_cast<const std::byte*>(plane), static_cast<size_t>(bytes)});
}

// Straight from the layout of a state record: core/dtype.h names its planes in order.
std::array<uint32_t, kMaxPlanes> state_sums(TestState& state, AdamKind kind) {
  const AdamPlanes planes = state.planes();
  std::array<uint32_t, kMaxPlanes> sums = {kSeed, kSeed, kSeed};
  size_t next = 0;
  for (const Plane& plane :
       planes_of({state.format.precision, optimizer_of(kind), state.format.moments}, Group::kState)) {
    const void* at = planes.residual;
    if (plane.name == "master") at = planes.master;
    if (plane.name == "moment1") at = planes.moment1 ? static_cast<void*>(planes.moment1) : planes.half_moment1;
    if (plane.name == "moment2") at = planes.moment2 ? static_cast<void*>(planes.moment2) : planes.half_moment2;
    sums[next++] = sum_of(at, state.elements * plane.bytes_per_element);
  }
  return sums;
}

uint32_t weights_sum(TestState& state) {
  return sum_of(state.planes().weights, state.elements * bytes_of(weights_dtype(state.format.precision)));
}

// What core/checksum.h says before and after the target's plain kernel, of what `which` asks for; `state` is updated.
Found expected_sums(AdamKernel kernel, TestState& state, AdamKind kind, unsigned which = kAll) {
  Found found;
  if (which & 1) found.weights_in = weights_sum(state);
  if (which & 2) found.state_in = state_sums(state, kind);
  if (which & 4) found.gradient_in = sum_of(state.planes().gradient, state.elements * bytes_of(state.format.gradient));
  kernel(sum_step_of(kind), state.planes(), state.elements);
  if (which & 8) found.weights_out = weights_sum(state);
  if (which & 16) found.state_out = state_sums(state, kind);
  return found;
}

class SummingTarget : public testing::TestWithParam<std::string_view> {
 protected:
  // The same values through both kernels: bits, flag, sums, and not a byte beside the range.
  static void expect_same(AdamFormat format, AdamKind kind, TestState& state, unsigned which = kAll) {
    const AdamKernel plain = adam_simd_for(format, GetParam());
    const SummingAdamKernel summing = summing_adam_simd_for(format, GetParam());
    ASSERT_NE(summing, nullptr);
    TestState reference = state, flag = state;
    const Found expected = expected_sums(plain, reference, kind, which);
    Found found;
    const Finite finite = summing(sum_step_of(kind), state.planes(), state.elements, found.sums(which));
    EXPECT_EQ(finite, plain(sum_step_of(kind), flag.planes(), flag.elements));
    ASSERT_TRUE(state.same_bytes(reference)) << "element " << first_difference(state, reference);
    ASSERT_EQ(found, expected);
  }
};
INSTANTIATE_TEST_SUITE_P(Runnable, SummingTarget, testing::ValuesIn(adam_simd_targets()),
                         [](const auto& target) { return std::string(target.param); });

TEST_P(SummingTarget, has_the_checksums_of_every_length_at_every_offset) {
  for (const AdamFormat format : all_formats_and_moments()) {
    for (const AdamKind kind : all_kinds()) {
      for (int64_t elements = 0; elements <= 200; ++elements) {
        SCOPED_TRACE(std::string(name_of(format.precision)) + ", elements: " + std::to_string(elements));
        TestState state(format, elements, {.offset = elements % 32, .skew = elements % 7});
        fill(state, Values::kOrdinary, static_cast<uint64_t>(elements));
        ASSERT_NO_FATAL_FAILURE(expect_same(format, kind, state));
      }
    }
  }
}

TEST_P(SummingTarget, has_the_checksums_of_any_pattern_and_of_more_than_a_tile) {
  for (const AdamFormat format : all_formats_and_moments()) {
    TestState state(format, 20'011, {.offset = 5, .skew = 3});
    fill(state, Values::kAnyPattern, 11);
    ASSERT_NO_FATAL_FAILURE(expect_same(format, AdamKind::kAdamW, state));
  }
}

TEST_P(SummingTarget, takes_the_sums_that_are_asked_for_and_touches_no_other) {
  const AdamFormat format = all_formats().front();
  for (unsigned which = 0; which <= kAll; ++which) {
    SCOPED_TRACE(which);
    TestState state(format, 333);
    fill(state, Values::kOrdinary, which);
    ASSERT_NO_FATAL_FAILURE(expect_same(format, AdamKind::kAdamW, state, which));
  }
}

// As the runs of a chunk follow each other, of any length.
TEST_P(SummingTarget, continues_the_sums_of_the_range_before) {
  for (const AdamFormat format : all_formats_and_moments()) {
    const SummingAdamKernel kernel = summing_adam_simd_for(format, GetParam());
    TestState state(format, 1500, {.offset = 1});
    fill(state, Values::kOrdinary, 7);
    TestState reference = state;
    const Found expected = expected_sums(adam_simd_for(format, GetParam()), reference, AdamKind::kAdamW);
    Found found;
    int64_t length = 1;
    for (int64_t first = 0; first < state.elements; first += length, length = length * 3 % 401) {
      length = std::min(length, state.elements - first);
      kernel(sum_step_of(AdamKind::kAdamW), planes_at(state.planes(), format, first), length, found.sums(kAll));
    }
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(state.same_bytes(reference));
  }
}

TEST(AdamSums, in_tiles_are_those_of_any_kernel) {
  for (const AdamFormat format : all_formats_and_moments()) {
    TestState state(format, 20'011, {.offset = 3});
    fill(state, Values::kOrdinary, 5);
    TestState reference = state;
    const Found expected = expected_sums(adam_scalar(format), reference, AdamKind::kAdamW);
    Found found;
    const AdamRun run{sum_step_of(AdamKind::kAdamW), state.planes(), state.elements};
    EXPECT_EQ(update_in_tiles(adam_scalar(format), format, run, found.sums(kAll)), Finite::kYes);
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(state.same_bytes(reference));
  }
}

TEST(AdamSums, are_taken_by_the_first_of_the_targets) {
  for (const AdamFormat format : all_formats_and_moments()) {
    EXPECT_EQ(summing_adam_simd(format), summing_adam_simd_for(format, adam_simd_targets().front()));
  }
  EXPECT_EQ(summing_adam_simd_for(all_formats().front(), "ABACUS"), nullptr);
}

}  // namespace
}  // namespace sluice
