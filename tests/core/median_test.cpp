#include "core/median.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace sluice {
namespace {

TEST(Median, is_the_value_in_the_middle_or_the_mean_of_the_two) {
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 6}), 5);
}

TEST(Median, of_nothing_is_a_programmers_error) { EXPECT_THROW(median({}), std::logic_error); }

}  // namespace
}  // namespace sluice
