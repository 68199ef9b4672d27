// When a run with rare commits commits in between.
#include "app/commit_pace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int64_t kMinute = CommitPace::kMostLostNs, kSecond = kMinute / 60;

TEST(CommitPace, nothing_is_due_before_a_minute) {
  CommitPace pace(5 * kSecond);
  EXPECT_FALSE(pace.is_due(6 * kSecond, 0));
  EXPECT_FALSE(pace.is_due(5 * kSecond + kMinute - 1, 0));
  EXPECT_TRUE(pace.is_due(5 * kSecond + kMinute, 0));
}

TEST(CommitPace, a_commit_that_was_asked_for_is_not_due_again_at_once) {
  CommitPace pace(0);
  EXPECT_TRUE(pace.is_due(kMinute + kSecond, 0));
  EXPECT_FALSE(pace.is_due(kMinute + 2 * kSecond, 0));
  EXPECT_FALSE(pace.is_due(2 * kMinute + kSecond - 1, 0));
  EXPECT_TRUE(pace.is_due(2 * kMinute + kSecond, 0));
}

// It is of the step that ended then, and durable only now.
TEST(CommitPace, a_commit_that_came_counts_from_when_it_was_asked_before) {
  CommitPace pace(0);
  EXPECT_FALSE(pace.is_due(40 * kSecond, 0));
  EXPECT_FALSE(pace.is_due(70 * kSecond, 10)) << "30 s";
  EXPECT_FALSE(pace.is_due(40 * kSecond + kMinute - 1, 10));
  EXPECT_TRUE(pace.is_due(40 * kSecond + kMinute, 10));
  EXPECT_FALSE(pace.is_due(130 * kSecond, 20)) << "one that nobody asked for, of the step that ended at 100 s";
  EXPECT_FALSE(pace.is_due(100 * kSecond + kMinute - 1, 20));
}

TEST(CommitPace, is_due_before_every_step_of_a_minute) {
  CommitPace pace(0);
  for (int64_t step = 1; step < 5; ++step) EXPECT_TRUE(pace.is_due(step * kMinute, step - 2)) << step;
}

}  // namespace
}  // namespace sluice
