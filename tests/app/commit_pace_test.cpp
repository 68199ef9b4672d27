// When a run with rare commits commits in between.
#include "app/commit_pace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000'000, kMinute = 60 * kSecond, kBegan = 5 * kSecond;
static_assert(CommitPace::kMostLostNs == kMinute);

TEST(CommitPace, asks_for_one_a_minute_after_the_run_began_and_not_again_at_once) {
  CommitPace pace(kBegan);
  EXPECT_FALSE(pace.is_due(kBegan + kSecond, 0));
  EXPECT_FALSE(pace.is_due(kBegan + kMinute - 1, 0));
  EXPECT_TRUE(pace.is_due(kBegan + kMinute, 0));
  EXPECT_FALSE(pace.is_due(kBegan + kMinute + 10 * kSecond, 0)) << "the one that was asked for is on its way";
}

TEST(CommitPace, counts_from_the_end_of_the_step_that_is_committed) {
  CommitPace pace(kBegan);
  EXPECT_FALSE(pace.is_due(kBegan + 30 * kSecond, 0));
  EXPECT_FALSE(pace.is_due(kBegan + 40 * kSecond, 9)) << "of the step that ended at 30 s: it is durable one later";
  EXPECT_FALSE(pace.is_due(kBegan + 90 * kSecond - 1, 9));
  EXPECT_TRUE(pace.is_due(kBegan + 90 * kSecond, 9));
}

TEST(CommitPace, asks_for_one_before_every_step_that_takes_longer_than_a_minute) {
  CommitPace pace(kBegan);
  for (int64_t step = 1; step < 5; ++step) {
    EXPECT_TRUE(pace.is_due(kBegan + step * 2 * kMinute, step > 2 ? step - 2 : 0)) << step;
  }
}

}  // namespace
}  // namespace sluice
