// Every device's optimizer gives the bits of cpu_adam's reference; run over every implementation that can be had here.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/bytes.h"
#include "core/half.h"
#include "cpu_adam/adam.h"
#include "offload/device.h"
#include "tests/contract/every_device.h"

namespace sluice {
namespace {

constexpr int64_t kElements = 9001, kPlaneBytes = 40 * kKiB;  // more than two of a GPU's blocks
constexpr int kPlanes = 5;                                    // weights, residual or master, two moments, gradient
constexpr int64_t kBytes = kPlanes * kPlaneBytes;

// The planes of elements from `element` on, in a block of memory.
AdamPlanes planes_in(std::byte* memory, AdamFormat format, int64_t element) {
  AdamPlanes planes;
  planes.weights = memory;
  if (format.precision == Precision::kBf16) planes.residual = reinterpret_cast<int16_t*>(memory + kPlaneBytes);
  if (format.precision == Precision::kFp16) planes.master = reinterpret_cast<float*>(memory + kPlaneBytes);
  set_moments(planes, format.moments, memory + 2 * kPlaneBytes, memory + 3 * kPlaneBytes);
  planes.gradient = memory + 4 * kPlaneBytes;
  planes.element = 12345;
  return planes_at(planes, format, element);
}

// Small numbers of both signs in every plane, none of them zero, beside which not every residual makes a number;
// positive ones where the root of a moment is taken.
std::vector<std::byte> filled(AdamFormat format, AdamKind kind = AdamKind::kAdamW) {
  std::vector<std::byte> memory(kBytes);
  std::mt19937 random(7);
  const auto number = [&] { return (static_cast<float>(random() % 2000) - 999.5f) / 500; };
  const auto put = [&](int plane, DType type, int64_t i, float value) {
    std::byte* at = memory.data() + plane * kPlaneBytes + i * bytes_of(type);
    const uint16_t half = type == DType::kBf16 ? bf16_of_float(value) : fp16_of_float(value);
    type == DType::kFp32 ? std::memcpy(at, &value, 4) : std::memcpy(at, &half, 2);
  };
  for (int64_t i = 0; i < kElements; ++i) {
    const float value = number();
    put(0, weights_dtype(format.precision), i, value);
    if (format.precision == Precision::kBf16) {
      const auto residual = static_cast<int16_t>(random());
      std::memcpy(memory.data() + kPlaneBytes + 2 * i, &residual, 2);
    } else {
      put(1, DType::kFp32, i, value);
    }
    put(2, format.moments, i, kind == AdamKind::kAdagrad ? std::abs(number()) : number());
    put(3, format.moments, i, std::abs(number()));
    put(4, format.gradient, i, number());
  }
  return memory;
}

class EveryOptimizer : public testing::OverDevices {};

TEST_P(EveryOptimizer, updates_runs_of_other_hyper_parameters_to_the_bits_of_the_reference) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    for (const DType gradient : {weights_dtype(precision), DType::kFp32}) {
      for (const DType moments : {DType::kFp32, DType::kBf16}) {
        for (const AdamKind kind :
             {AdamKind::kAdamW, AdamKind::kAdam, AdamKind::kAdagrad, AdamKind::kLion, AdamKind::kSgd}) {
          const AdamFormat format{precision, gradient, moments};
          const auto made = make_device(GetParam(), kMiB, adam_simd(format));
          std::byte* const memory = made->memory() + kPlaneBytes;
          std::vector<std::byte> expected = filled(format, kind), found(kBytes);
          made->copy_now(memory, expected.data(), kBytes);
          // As many runs as one call may have, of lengths that no vector divides.
          std::array<AdamRun, Device::kMaxRuns> runs;
          int64_t at = 0;
          for (size_t i = 0; i < runs.size(); ++i) {
            const int64_t elements = i + 1 < runs.size() ? 1 + static_cast<int64_t>(i) * 7 : kElements - at;
            const double number = static_cast<double>(i + 1);
            const AdamStep step = adam_step({.kind = kind,
                                             .learning_rate = 1e-2 * number,
                                             .weight_decay = 0.1 / number,
                                             .momentum = 0.9,
                                             .rounding_seed = i},
                                            3, 0.5);
            adam_scalar(format)(step, planes_in(expected.data(), format, at), elements);
            runs[i] = {step, planes_in(memory, format, at), elements};
            at += elements;
          }
          EXPECT_EQ(made->update(format, runs), Finite::kYes);
          made->copy_now(found.data(), memory, kBytes);
          EXPECT_EQ(found, expected) << name_of(precision) << ", kind " << static_cast<int>(kind);
        }
      }
    }
  }
}

TEST_P(EveryOptimizer, says_where_an_update_made_a_value_that_is_not_finite) {
  const AdamFormat format{Precision::kBf16, DType::kBf16, DType::kFp32};
  const auto made = make_device(GetParam(), kMiB, adam_simd(format));
  const std::vector<std::byte> start = filled(format);
  made->copy_now(made->memory(), start.data(), kBytes);
  const AdamStep good = adam_step({}, 1, 1), bad = adam_step({}, 1, std::numeric_limits<double>::infinity());
  const std::array runs = {AdamRun{bad, planes_in(made->memory(), format, 0), 3},
                           AdamRun{good, planes_in(made->memory(), format, 3), kElements - 3}};
  EXPECT_EQ(made->update(format, runs), Finite::kNo);
  EXPECT_EQ(made->update(format, std::span(runs).last(1)), Finite::kYes);
}

INSTANTIATE_TEST_SUITE_P(, EveryOptimizer, testing::every_device(), testing::name_of_device);

}  // namespace
}  // namespace sluice
