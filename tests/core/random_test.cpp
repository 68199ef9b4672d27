#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Philox, gives_the_published_known_answers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, depends_on_every_bit_of_seed_stream_and_index) {
  const double base = uniform_at(1, 2, 3);
  EXPECT_EQ(base, uniform_at(1, 2, 3));
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    EXPECT_NE(base, uniform_at(1 ^ flip, 2, 3)) << bit;
    EXPECT_NE(base, uniform_at(1, 2 ^ flip, 3)) << bit;
    EXPECT_NE(base, uniform_at(1, 2, 3 ^ flip)) << bit;
  }
}

// Another value here is another model from the same seed.
TEST(Uniform, and_normal_numbers_are_these_in_every_version) {
  EXPECT_EQ(uniform_at(1, 2, 3), 0.86732097389176488);
  EXPECT_EQ(uniform_at(42, stream_of("wte.weight"), 1000003), 0.85184175055474043);
  EXPECT_DOUBLE_EQ(normal_at(1, 2, 3), -0.43047584591048316);
  EXPECT_DOUBLE_EQ(normal_at(42, stream_of("wte.weight"), 1000003), -0.54475416021491574);
}

TEST(Uniform, stays_below_one_and_fills_the_interval) {
  constexpr uint64_t kDraws = 100000;
  double sum = 0;
  for (uint64_t index = 0; index < kDraws; ++index) {
    const double value = uniform_at(7, 0, index);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
}

TEST(Normal, has_mean_zero_variance_one_and_is_always_finite) {
  constexpr uint64_t kDraws = 100000;
  double sum = 0, squares = 0, fourths = 0;
  for (uint64_t index = 0; index < kDraws; ++index) {
    const double value = normal_at(7, stream_of("h.0.mlp.c_fc.weight"), index);
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourths += value * value * value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.02);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.03);
  EXPECT_NEAR(fourths / kDraws, 3.0, 0.2);
}

TEST(StreamOf, is_fnv_1a_of_64_bits) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace sluice
