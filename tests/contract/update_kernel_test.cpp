// The CUDA optimizer's own code, run on the host block after block in any order, against cpu_adam's reference by bits.
#include "offload/update_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/cpu_adam/adam_planes.h"
#include "tests/offload/host_block.h"

namespace sluice {
namespace {

Finite update_by_kernel(AdamFormat format, const AdamRun& run) {
  int not_finite = 0;
  const int64_t blocks = (run.elements + kernels::kTileElements - 1) / kernels::kTileElements;
  adam::with_format(format, [&]<Precision kPrecision, DType kGradient, DType kMoments>() {
    launch(blocks, 3, [&](const HostBlock& block) {
      kernels::update_tile<kPrecision, kGradient, kMoments>(block, run, &not_finite);
    });
  });
  return not_finite == 0 ? Finite::kYes : Finite::kNo;
}

AdamStep step_of(AdamKind kind, int64_t t) {
  return adam_step({.kind = kind, .learning_rate = 3e-3, .weight_decay = 0.1, .momentum = 0.9, .rounding_seed = 11}, t,
                   0.7);
}

TEST(UpdateKernel, gives_the_bits_of_the_reference_at_every_size_and_offset) {
  for (const AdamFormat format : all_formats_and_moments()) {
    for (const AdamKind kind : all_kinds()) {
      for (const int64_t elements : {0, 1, 2, 3, 31, 33, 255, 256, 257, 4095, 4096, 4097, 9001}) {
        TestState found(format, elements, {.offset = elements % 5, .skew = 3});
        fill(found, Values::kOrdinary, static_cast<uint64_t>(elements));
        TestState expected = found;
        for (int64_t t = 1; t <= 2; ++t) {
          const AdamStep step = step_of(kind, t);
          const Finite finite = adam_scalar(format)(step, expected.planes(), elements);
          EXPECT_EQ(update_by_kernel(format, {step, found.planes(), elements}), finite);
        }
        ASSERT_TRUE(found.same_bytes(expected)) << "kind " << static_cast<int>(kind) << ", " << elements;
      }
    }
  }
}

TEST(UpdateKernel, gives_the_bits_of_the_reference_on_values_of_every_pattern_and_says_what_is_not_finite) {
  for (const AdamFormat format : all_formats_and_moments()) {
    for (const AdamKind kind : all_kinds()) {
      TestState found(format, 20'000);
      fill(found, Values::kAnyPattern, 5);
      TestState expected = found;
      const AdamStep step = step_of(kind, 3);
      EXPECT_EQ(adam_scalar(format)(step, expected.planes(), 20'000), Finite::kNo);
      EXPECT_EQ(update_by_kernel(format, {step, found.planes(), 20'000}), Finite::kNo);
      ASSERT_EQ(first_difference(found, expected), -1) << "kind " << static_cast<int>(kind);
      ASSERT_TRUE(found.guards_intact());
    }
  }
}

TEST(UpdateKernel, says_of_a_master_whose_weight_is_infinite_that_it_is_not_finite) {
  const AdamStep still = adam_step({.learning_rate = 0, .weight_decay = 0}, 1, 1);
  for (const AdamFormat format : all_formats_and_moments()) {
    const float too_large = too_large_for(format.precision);
    for (const float master : {std::nextafter(too_large, 0.0f), too_large, -too_large}) {
      TestState state(format, 1);
      state.set(0, {master, 0.0f, 1.0f, 0.1f});
      const Finite expected = std::abs(master) < too_large ? Finite::kYes : Finite::kNo;
      EXPECT_EQ(update_by_kernel(format, {still, state.planes(), 1}), expected) << master;
    }
  }
}

TEST(UpdateKernel, says_that_a_value_is_not_finite_wherever_it_lies) {
  constexpr int64_t kElements = 9001;
  const AdamFormat format{Precision::kFp32, DType::kFp32, DType::kFp32};
  for (const size_t at : {0, 256, 1024, 4095, 4096, 9000}) {
    TestState state(format, kElements);
    fill(state, Values::kOrdinary, 1);
    std::vector<float> gradient(kElements, 1.0f);
    gradient[at] = std::numeric_limits<float>::infinity();
    AdamPlanes planes = state.planes();
    planes.gradient = reinterpret_cast<const std::byte*>(gradient.data());
    EXPECT_EQ(update_by_kernel(format, {step_of(AdamKind::kAdamW, 1), planes, kElements}), Finite::kNo) << at;
  }
}

}  // namespace
}  // namespace sluice
