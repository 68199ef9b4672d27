#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

constexpr uint32_t kLowHalves[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000,
                                   0x3001, 0x7000, 0x7fff, 0x8000, 0x8001, 0xefff, 0xf000, 0xf001, 0xffff};

template <class Check>
void for_every_high_half(Check check) {
  for (uint32_t high = 0; high <= 0xffff; ++high) {
    for (const uint32_t low : kLowHalves) check((high << 16) | low);
  }
}

TEST(Half, reads_every_fp16_pattern_as_the_compiler_does) {
  for (uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const float expected = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(pattern)));
    const float value = float_of_fp16(static_cast<uint16_t>(pattern));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << pattern;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(expected)) << pattern;
    }
  }
}

TEST(Half, rounds_to_fp16_as_the_compiler_does) {
  for_every_high_half([](uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    const uint16_t half = fp16_of_float(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of_fp16(half))) << bits;
    } else {
      EXPECT_EQ(half, std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << std::hex << bits;
    }
  });
}

TEST(Half, rounds_to_the_nearest_bf16_and_ties_to_the_even_one) {
  const auto value_of = [](uint32_t pattern) -> double {  // past the largest finite one: where the next would be
    if ((pattern & 0x7fff) == 0x7f80) return pattern & 0x8000 ? -0x1p128 : 0x1p128;
    return float_of_bf16(static_cast<uint16_t>(pattern));
  };
  for_every_high_half([&](uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    const uint16_t half = bf16_of_float(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_of_bf16(half))) << bits;
      return;
    }
    if (std::isinf(value)) {
      EXPECT_EQ(uint32_t{half} << 16, bits);
      return;
    }
    const uint32_t below = bits >> 16;  // towards zero
    const double down = std::abs(value - value_of(below)), up = std::abs(value_of(below + 1) - value);
    const uint32_t nearest = down < up || (down == up && below % 2 == 0) ? below : below + 1;
    EXPECT_EQ(half, nearest) << std::hex << bits;
  });
}

TEST(Half, keeps_every_pattern_through_a_round_trip) {
  for (uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto half = static_cast<uint16_t>(pattern);
    if (!std::isnan(float_of_bf16(half))) {
      EXPECT_EQ(bf16_of_float(float_of_bf16(half)), half);
    }
    if (!std::isnan(float_of_fp16(half))) {
      EXPECT_EQ(fp16_of_float(float_of_fp16(half)), half);
    }
  }
}

}  // namespace
}  // namespace sluice
