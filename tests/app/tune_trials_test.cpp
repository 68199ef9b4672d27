// Which of several trials is chosen, and which keys that changes.
#include "app/tune_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tune_report.h"
#include "core/bytes.h"

namespace sluice {
namespace {

Trial trial(const TuneSettings& settings, std::vector<double> steps_ms) {
  Trial trial;
  trial.candidate.settings = settings;
  trial.steps_ms = std::move(steps_ms);
  return trial;
}
constexpr TuneSettings kGiven{}, kSameBits{.chunk = 1}, kOtherBits{.batching = 1};

TEST(Choose, takes_the_fastest_median) {
  const std::vector<Trial> trials = {trial(kGiven, {100, 100, 10}), trial(kSameBits, {90, 500, 80})};
  EXPECT_EQ(&choose(trials), &trials[1]);
}

TEST(Choose, keeps_what_is_given_for_less_than_two_percent) {
  EXPECT_TRUE(choose({trial(kSameBits, {98.5}), trial(kGiven, {100})}).is_given());
  EXPECT_FALSE(choose({trial(kSameBits, {97.5}), trial(kGiven, {100})}).is_given());
}

TEST(Choose, changes_bits_for_two_percent_more) {
  EXPECT_FALSE(choose({trial(kOtherBits, {79}), trial(kSameBits, {80}), trial(kGiven, {100})}).changes_bits());
  EXPECT_TRUE(choose({trial(kOtherBits, {78}), trial(kSameBits, {80}), trial(kGiven, {100})}).changes_bits());
  EXPECT_TRUE(choose({trial(kOtherBits, {97}), trial(kGiven, {100})}).is_given());
}

TEST(ChangedKeys, are_none_where_nothing_changed) {
  PlanOptions given;
  given.device_bytes = 64 * kMiB;
  Trial same = trial(kGiven, {100});
  same.plan = given;
  EXPECT_TRUE(changed_keys(same, given).empty());
}

TEST(ChangedKeys, name_both_budgets_and_chunks_as_people_write_them) {
  using ::testing::ElementsAre;
  using ::testing::Pair;
  PlanOptions given;
  given.device_bytes = 64 * kMiB;
  Trial other = trial({.chunk = 2, .split = 1}, {90});
  other.plan = given;
  other.plan.device_bytes = 48 * kMiB;
  other.plan.host_bytes = 1000;
  other.chunk_elements = 4096;
  EXPECT_THAT(changed_keys(other, given),
              ElementsAre(Pair("sluice.device_memory", "\"48MiB\""), Pair("sluice.host_memory", "1000"),
                          Pair("sluice.chunk_elements", "4096")));
}

}  // namespace
}  // namespace sluice
