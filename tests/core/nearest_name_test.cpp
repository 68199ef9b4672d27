#include "core/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

TEST(EditDistance, counts_what_is_inserted_removed_and_replaced) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(SlipBetween, is_a_third_of_the_longer_name_or_one) {
  EXPECT_EQ(slip_between("abcdef", "abcdxy"), 2u);
  EXPECT_EQ(slip_between("abcdef", "abcxyz"), std::nullopt);
  EXPECT_EQ(slip_between("abcdefgh", "abcdefxy"), 2u);
  EXPECT_EQ(slip_between("abcdefgh", "abcdexyz"), std::nullopt);
  EXPECT_EQ(slip_between("abcdefghi", "abcdefxyz"), 3u);
  EXPECT_EQ(slip_between("abcdef", "abcdefghi"), 3u);
  EXPECT_EQ(slip_between("abcde", "abcdefgh"), std::nullopt);
  EXPECT_EQ(slip_between("a", "b"), 1u);
  EXPECT_EQ(slip_between("a", "bc"), std::nullopt);
}

TEST(NearestName, is_the_first_of_the_nearest) {
  constexpr std::array<std::string_view, 4> kKnown = {"batch_size", "model_a", "model_b", "steps"};
  EXPECT_EQ(nearest_name("model_c", kKnown), "model_a");
  EXPECT_EQ(nearest_name("setps", kKnown), "steps");
}

}  // namespace
}  // namespace sluice
