// The gradient kernels of every SIMD target this CPU can run, against a plain reference, by bits.
#include "offload/gradient_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/half.h"

namespace sluice {
namespace {

constexpr DType kDTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

uint32_t rounded_pattern(float value, DType dtype) {
  if (dtype == DType::kBf16) return bf16_of_float(value);
  if (dtype == DType::kFp16) return fp16_of_float(value);
  return std::bit_cast<uint32_t>(value);
}
float value_of(uint32_t pattern, DType dtype) {
  if (dtype == DType::kBf16) return float_of_bf16(static_cast<uint16_t>(pattern));
  if (dtype == DType::kFp16) return float_of_fp16(static_cast<uint16_t>(pattern));
  return std::bit_cast<float>(pattern);
}
uint32_t pattern_at(const std::byte* from, DType dtype, int64_t i) {
  uint32_t pattern = 0;
  std::memcpy(&pattern, from + i * bytes_of(dtype), static_cast<size_t>(bytes_of(dtype)));
  return pattern;
}
bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b); }
bool same_sum(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (a != a && b != b);
}

// The norm's part as ARCHITECTURE.md defines it, element by element.
double plain_norm(const std::vector<float>& rounded) {
  double sum = 0;
  for (size_t first = 0; first < rounded.size(); first += 4096) {
    double lanes[32] = {};
    for (size_t i = first; i < std::min(first + 4096, rounded.size()); ++i) {
      const double g = rounded[i];
      lanes[(i - first) % 32] += g * g;
    }
    for (const int step : {16, 8, 4, 2, 1}) {
      for (int lane = 0; lane < step; ++lane) lanes[lane] = lanes[lane] + lanes[lane + step];
    }
    sum += lanes[0];
  }
  return sum;
}

enum class Values { kOrdinary, kAnyPattern };

std::vector<float> make_values(size_t elements, Values values, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(elements);
  for (float& value : made) {
    value = normal(random) * std::exp2(static_cast<float>(random() % 40) - 25.0f);
    if (values == Values::kAnyPattern) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  return made;
}

std::vector<float> rounded_values(const std::vector<float>& open, float scale, DType dtype) {
  std::vector<float> rounded;
  for (const float value : open) rounded.push_back(value_of(rounded_pattern(value * scale, dtype), dtype));
  return rounded;
}

void expect_closed(const std::byte* closed, DType dtype, const std::vector<float>& expected, size_t first = 0) {
  for (size_t i = first; i < expected.size(); ++i) {
    const float value = value_of(pattern_at(closed, dtype, static_cast<int64_t>(i - first)), dtype);
    ASSERT_TRUE(same(value, expected[i])) << "element " << i << ": " << value << " instead of " << expected[i];
  }
}

// While it lives, Highway's dispatch uses this target.
class GradientKernels : public testing::TestWithParam<int64_t> {
 protected:
  GradientKernels() { hwy::SetSupportedTargetsForTest(GetParam()); }
  ~GradientKernels() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Runnable, GradientKernels, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(GradientKernels, store_the_first_contribution_and_add_later_ones) {
  for (const DType dtype : kDTypes) {
    for (size_t elements : {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 65, 129, 1000}) {
      const std::vector<float> first = make_values(elements, Values::kAnyPattern, 1);
      const std::vector<float> later = make_values(elements, Values::kOrdinary, 2);
      std::vector<float> open(elements + 1, -7.0f);
      std::vector<std::byte> gradient(elements * 4 + 1);  // read from an odd address
      for (const auto* values : {&first, &later}) {
        for (size_t i = 0; i < elements; ++i) {
          const uint32_t pattern = rounded_pattern((*values)[i], dtype);
          const auto width = static_cast<size_t>(bytes_of(dtype));
          std::memcpy(gradient.data() + 1 + i * width, &pattern, width);
        }
        add_gradient(open.data(), {gradient.data() + 1, dtype, static_cast<int64_t>(elements)},
                     values == &first ? Contribution::kFirst : Contribution::kLater);
      }
      const std::vector<float> a = rounded_values(first, 1.0f, dtype), b = rounded_values(later, 1.0f, dtype);
      for (size_t i = 0; i < elements; ++i) ASSERT_TRUE(same(open[i], a[i] + b[i])) << i << " of " << elements;
      EXPECT_EQ(open[elements], -7.0f) << "written past the end";
    }
  }
}

TEST_P(GradientKernels, close_with_the_bits_and_the_norm_of_a_plain_reference_at_every_length) {
  const float scale = 1.0f / 3.0f;
  for (const DType dtype : kDTypes) {
    for (const Values values : {Values::kOrdinary, Values::kAnyPattern}) {
      for (size_t elements = 0; elements < 9000; elements += elements < 130 ? 1 : 1009) {
        SCOPED_TRACE(std::string(name_of(dtype)) + ", elements: " + std::to_string(elements));
        const std::vector<float> open = make_values(elements, values, elements);
        const std::vector<float> expected = rounded_values(open, scale, dtype);
        const auto bytes = static_cast<size_t>(bytes_of(dtype)) * elements;
        std::vector<std::byte> closed(bytes + 65, std::byte{0x5a});
        const ClosedPiece piece{closed.data() + 1, static_cast<int64_t>(elements)};
        const double sum = close_gradient({open.data(), scale, dtype, {&piece, 1}});
        ASSERT_NO_FATAL_FAILURE(expect_closed(piece.to, dtype, expected));
        ASSERT_TRUE(same_sum(sum, plain_norm(expected))) << sum << " instead of " << plain_norm(expected);
        ASSERT_EQ(closed.front(), std::byte{0x5a});
        for (size_t i = bytes + 1; i < closed.size(); ++i) ASSERT_EQ(closed[i], std::byte{0x5a}) << "past the end";
      }
    }
  }
}

TEST_P(GradientKernels, close_with_the_same_bits_and_norm_however_the_output_is_cut) {
  const std::vector<float> open = make_values(13'001, Values::kOrdinary, 4);
  for (const DType dtype : kDTypes) {
    const std::vector<float> expected = rounded_values(open, 0.25f, dtype);
    for (const int64_t cut : {1, 31, 128, 1000, 4096, 5000, 13'000, 20'000}) {
      std::vector<std::vector<std::byte>> memory;
      std::vector<ClosedPiece> pieces;
      for (int64_t first = 0; first < 13'001; first += cut) {
        const int64_t elements = std::min<int64_t>(cut, 13'001 - first);
        pieces.push_back({memory.emplace_back(static_cast<size_t>(elements * bytes_of(dtype))).data(), elements});
        pieces.push_back({nullptr, 0});  // a piece may be empty
      }
      const double sum = close_gradient({open.data(), 0.25f, dtype, pieces});
      EXPECT_TRUE(same_sum(sum, plain_norm(expected))) << cut;
      size_t first = 0;
      for (const ClosedPiece& piece : pieces) {
        const std::vector<float> part(expected.begin() + static_cast<int64_t>(first),
                                      expected.begin() + static_cast<int64_t>(first) + piece.elements);
        ASSERT_NO_FATAL_FAILURE(expect_closed(piece.to, dtype, part));
        first += static_cast<size_t>(piece.elements);
      }
      EXPECT_EQ(first, open.size());
    }
  }
}

TEST_P(GradientKernels, close_and_round_in_place_and_into_memory_before_as_they_do_elsewhere) {
  const std::vector<float> values = make_values(20'011, Values::kOrdinary, 6);
  const auto elements = static_cast<int64_t>(values.size());
  for (const DType dtype : kDTypes) {
    const std::vector<float> closed_values = rounded_values(values, 0.5f, dtype);
    const std::vector<float> rounded = rounded_values(values, 1.0f, dtype);
    for (const size_t distance : {0, 1, 5, 16, 100, 4096, 30'000}) {  // in floats
      std::vector<float> memory(distance + values.size());
      auto* to = reinterpret_cast<std::byte*>(memory.data());
      std::copy(values.begin(), values.end(), memory.begin() + static_cast<int64_t>(distance));
      const ClosedPiece pieces[] = {{to, 100}, {to + 100 * bytes_of(dtype), elements - 100}};
      const double sum = close_gradient({memory.data() + distance, 0.5f, dtype, pieces});
      EXPECT_TRUE(same_sum(sum, plain_norm(closed_values)));
      ASSERT_NO_FATAL_FAILURE(expect_closed(to, dtype, closed_values)) << distance;

      std::copy(values.begin(), values.end(), memory.begin() + static_cast<int64_t>(distance));
      round_to(memory.data() + distance, to, dtype, elements);
      ASSERT_NO_FATAL_FAILURE(expect_closed(to, dtype, rounded)) << distance;
    }
  }
}

TEST_P(GradientKernels, let_infinities_and_nans_reach_the_norm) {
  for (const DType dtype : kDTypes) {
    for (const size_t at : {0u, 31u, 4095u, 4096u, 4999u}) {
      std::vector<float> open(5000, 0.5f);
      std::vector<std::byte> closed(open.size() * 4);
      const ClosedPiece piece{closed.data(), 5000};
      open[at] = -std::numeric_limits<float>::infinity();
      EXPECT_EQ(close_gradient({open.data(), 1.0f, dtype, {&piece, 1}}), std::numeric_limits<double>::infinity());
      for (const uint32_t nan : {0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {  // the last two would round to zeros
        open[at] = std::bit_cast<float>(nan);
        EXPECT_TRUE(std::isnan(close_gradient({open.data(), 1.0f, dtype, {&piece, 1}}))) << nan;
      }
    }
  }
}

TEST_P(GradientKernels, round_every_edge_of_both_halves_as_the_scalar_conversions_do) {
  std::vector<float> values;
  for (uint32_t high = 0; high <= 0xffff; ++high) {
    for (const uint32_t low :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((high << 16) | low));
    }
  }
  std::vector<std::byte> rounded(values.size() * 2);
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    round_to(values.data(), rounded.data(), dtype, static_cast<int64_t>(values.size()));
    ASSERT_NO_FATAL_FAILURE(expect_closed(rounded.data(), dtype, rounded_values(values, 1.0f, dtype)));
  }
}

}  // namespace
}  // namespace sluice
