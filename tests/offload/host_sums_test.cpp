// Numbers in a small ring, against the same sums kept aside.
#include "offload/host_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

namespace sluice {
namespace {

TEST(HostSums, add_up_with_the_compute_that_they_belong_to_and_not_before) {
  std::vector<double> ring(10);
  HostSums sums(ring);
  double first = 0, second = 0;
  std::fill_n(sums.take(&first, 3, 1), 3, 2.0);
  std::fill_n(sums.take(&second, 4, 2), 4, 10.0);
  EXPECT_EQ(sums.room(), 3);
  sums.add_up(0);
  EXPECT_EQ(first, 0);
  sums.add_up(1);
  EXPECT_EQ(first, 6);
  EXPECT_EQ(second, 0);
  EXPECT_EQ(sums.room(), 3);  // the ring's end
  std::fill_n(sums.take(&first, 3, 3), 3, 0.5);
  EXPECT_EQ(sums.room(), 3);  // its beginning, which the first part gave back
  sums.add_up(3);
  EXPECT_EQ(first, 7.5);
  EXPECT_EQ(second, 40);
  sums.add_up(3);
  EXPECT_EQ(second, 40);
}

// In ascending order, bit by bit, with as much under way as there is room for.
TEST(HostSums, have_their_numbers_in_order_round_after_round) {
  constexpr int kRounds = 2000;
  std::mt19937 random(1);
  std::vector<double> ring(37), found(kRounds), expected(kRounds);
  HostSums sums(ring);
  uint64_t ended = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (auto tiles = static_cast<int64_t>(random() % 60); tiles > 0;) {
      while (sums.room() == 0) sums.add_up(++ended);
      const int64_t some = std::min(tiles, sums.room());
      double* const numbers = sums.take(&found[round], some, round + 1);
      for (int64_t i = 0; i < some; ++i) {
        numbers[i] = std::uniform_real_distribution<double>(0, 1)(random);
        expected[round] += numbers[i];
      }
      tiles -= some;
    }
  }
  sums.add_up(kRounds);
  EXPECT_EQ(found, expected);
}

// Many small ones: the list of parts is full before the ring is.
TEST(HostSums, have_no_room_beyond_the_most_parts) {
  std::vector<double> ring(2 * HostSums::kMostParts, 1.0);
  HostSums sums(ring);
  double sum = 0;
  for (size_t i = 0; i < HostSums::kMostParts; ++i) *sums.take(&sum, 1, 1) = 1;
  EXPECT_EQ(sums.room(), 0);
  EXPECT_THROW(sums.take(&sum, 1, 1), std::logic_error);
  sums.add_up(1);
  EXPECT_EQ(sum, HostSums::kMostParts);
  EXPECT_GT(sums.room(), 0);
}

}  // namespace
}  // namespace sluice
