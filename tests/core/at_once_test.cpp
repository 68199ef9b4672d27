#include "core/at_once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>
#include <vector>

namespace sluice {
namespace {

TEST(AtOnce, does_each_piece_once_whatever_the_number_of_threads) {
  for (const int threads : {1, 4, 100}) {
    std::vector<std::atomic<int>> done(50);
    at_once(done.size(), threads, [&](size_t i) { ++done[i]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
  }
  at_once(0, 4, [](size_t) { FAIL() << "there is nothing to do"; });
}

TEST(AtOnce, runs_as_many_pieces_side_by_side_as_there_are_threads) {
  std::latch all_run(4);
  at_once(4, 4, [&](size_t) { all_run.arrive_and_wait(); });
}

// The second piece begins before the first throws, and ends.
TEST(AtOnce, begins_no_more_once_a_piece_has_thrown_and_throws_that_when_the_others_have_ended) {
  std::latch both_run(2);
  std::atomic<int> begun = 0, ended = 0;
  const auto work = [&](size_t i) {
    ++begun;
    if (i < 2) both_run.arrive_and_wait();
    if (i == 0) throw std::string("stopped");
    ++ended;
  };
  EXPECT_THROW(at_once(1'000'000'000, 2, work), std::string);
  EXPECT_EQ(begun, ended + 1);
  EXPECT_LT(begun, 1'000'000'000);
}

}  // namespace
}  // namespace sluice
