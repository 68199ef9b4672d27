// Which prediction stands beside a step: of steps as the run made them.
#include "app/step_predictions.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr double kDeferredMs = 10, kEarlyMs = 7;

StepPredictions predictions(UpdateMode mode) {
  Prediction deferred, early;
  deferred.step_ms = kDeferredMs;
  early.step_ms = early.busy_ms[0] = early.alone_ms[0] = kEarlyMs;
  return StepPredictions({.deferred = deferred, .early = early, .mode = mode});
}
StepEnd ended(Speculated speculated) { return {.speculated = speculated}; }
double ms(const std::optional<Prediction>& prediction) { return prediction ? prediction->step_ms : 0; }

TEST(StepPredictions, of_steps_like_the_one_before_are_those_of_their_kind) {
  StepPredictions next = predictions(UpdateMode::kAuto);
  EXPECT_EQ(ms(next.next(ended(Speculated::kNone))), kDeferredMs);
  EXPECT_EQ(ms(next.next(ended(Speculated::kNone))), kDeferredMs);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), 0);  // beside it the updates that waited
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), kEarlyMs);
}

TEST(StepPredictions, leave_out_steps_whose_updates_are_undone_and_those_that_do_them_again) {
  StepPredictions next = predictions(UpdateMode::kSpeculative);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), kEarlyMs);
  EXPECT_EQ(ms(next.next(ended(Speculated::kWrong))), 0);
  EXPECT_EQ(ms(next.next(ended(Speculated::kWrong))), 0);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), 0);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), kEarlyMs);
}

TEST(StepPredictions, leave_out_the_step_after_one_that_was_skipped_which_updates_nothing) {
  StepPredictions next = predictions(UpdateMode::kDeferred);
  StepEnd skipped = ended(Speculated::kNone);
  skipped.skipped = true;
  EXPECT_EQ(ms(next.next(skipped)), kDeferredMs);  // beside it the updates of the one before
  EXPECT_EQ(ms(next.next(skipped)), 0);
  EXPECT_EQ(ms(next.next(ended(Speculated::kNone))), 0);
  EXPECT_EQ(ms(next.next(ended(Speculated::kNone))), kDeferredMs);
}

TEST(StepPredictions, of_a_step_that_ran_again_count_everything_twice) {
  StepPredictions next = predictions(UpdateMode::kReplay);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), kEarlyMs);
  const auto again = next.next(ended(Speculated::kWrong));
  EXPECT_EQ(ms(again), 2 * kEarlyMs);
  EXPECT_EQ(again->busy_ms[0], 2 * kEarlyMs);
  EXPECT_EQ(again->alone_ms[0], 2 * kEarlyMs);
  EXPECT_EQ(ms(next.next(ended(Speculated::kRight))), kEarlyMs);
  StepEnd skipped = ended(Speculated::kWrong);
  skipped.skipped = true;  // which no step is run again for
  EXPECT_EQ(ms(next.next(skipped)), 0);
}

TEST(StepPredictions, of_nothing_known_are_nothing) {
  StepPredictions next({});
  EXPECT_FALSE(next.next(ended(Speculated::kNone)));
  EXPECT_FALSE(
      StepPredictions({.deferred = {}, .early = {}, .mode = UpdateMode::kReplay}).next(ended(Speculated::kWrong)));
}

}  // namespace
}  // namespace sluice
