#include "core/split_master.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr uint32_t kLowHalves[] = {0x0000, 0x0001, 0x0002, 0x00ff, 0x1234, 0x3fff, 0x4000, 0x7ffe, 0x7fff,
                                   0x8000, 0x8001, 0x8002, 0xabcd, 0xbfff, 0xc000, 0xff00, 0xfffe, 0xffff};

template <class Check>
void for_every_high_half(Check check) {
  for (uint32_t high = 0; high <= 0xffff; ++high) {
    for (const uint32_t low : kLowHalves) check(std::bit_cast<float>((high << 16) | low));
  }
}

TEST(SplitMaster, restores_every_number_exactly) {
  for_every_high_half([](float master) {
    const float back = join_master(split_master(master));
    if (std::isnan(master)) {
      EXPECT_TRUE(std::isnan(back)) << std::hex << std::bit_cast<uint32_t>(master);
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(back), std::bit_cast<uint32_t>(master));
    }
  });
}

TEST(SplitMaster, keeps_a_nan_a_nan_in_the_weight_and_through_further_round_trips) {
  for_every_high_half([](float master) {
    if (!std::isnan(master)) return;
    const SplitMaster split = split_master(master);
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(uint32_t{split.weight} << 16)));
    EXPECT_TRUE(std::isnan(join_master(split_master(join_master(split)))));
  });
}

TEST(SplitMaster, gives_the_nearest_bf16_as_weight_with_ties_away_from_zero) {
  const auto bf16 = [](int64_t pattern) { return static_cast<double>(std::bit_cast<float>(uint32_t(pattern) << 16)); };
  for_every_high_half([&](float master) {
    const uint32_t bits = std::bit_cast<uint32_t>(master);
    if ((bits & 0x7f800000u) == 0x7f800000u || (bits & 0x7fff0000u) == 0x7f7f0000u) return;  // no finite neighbour
    const int64_t below = bits >> 16;                                                        // towards zero
    const double value = master, down = std::abs(value - bf16(below)), up = std::abs(bf16(below + 1) - value);
    EXPECT_EQ(split_master(master).weight, down < up ? below : below + 1) << std::hex << bits;
  });
}

TEST(SplitMaster, keeps_signed_zero_and_infinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(split_master(-0.0f).weight, 0x8000);
  EXPECT_EQ(split_master(-0.0f).residual, 0);
  EXPECT_EQ(split_master(infinity).weight, 0x7f80);
  EXPECT_EQ(split_master(-infinity).weight, 0xff80);
  EXPECT_EQ(join_master({0x7f80, 0}), infinity);
  EXPECT_EQ(join_master({0x7f80, -1}), std::numeric_limits<float>::max());
}

}  // namespace
}  // namespace sluice
