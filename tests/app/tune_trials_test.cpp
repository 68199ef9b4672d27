// Which of several trials is chosen, and which keys that changes.
#include "app/tune_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/tune_report.h"
#include "bench/step_bench.h"
#include "core/bytes.h"
#include "core/interval_steps.h"

namespace sluice {
namespace {

Trial trial(const TuneSettings& settings, std::vector<double> steps_ms) {
  Trial trial;
  trial.candidate.settings = settings;
  trial.steps_ms = std::move(steps_ms);
  return trial;
}
constexpr TuneSettings kGiven{}, kSameBits{.chunk = 1}, kOtherBits{.batching = 1};

// A run's first steps are deferred under "auto". With a commit in every step a trial need not wait for them.
TEST(MakeTrial, of_early_updates_tries_the_plan_that_was_predicted) {
  RunSetup setup{.model = Gpt2({.vocab_size = 256, .n_positions = 32, .n_embd = 32, .n_layer = 4, .n_head = 2}, {})};
  PlanOptions plan{.device_bytes = 64 * kMiB, .host_bytes = 64 * kMiB, .chunk_elements = 4096};
  plan.placement.weights = plan.placement.state = {{HomeKind::kHost, 1}};
  plan.speculated_share = 0.6;
  for (const int interval : {1, 10}) {
    plan.commit_interval = interval;
    const Trial made = make_trial({}, setup, plan);
    EXPECT_EQ(made.commit_interval, interval);
    EXPECT_EQ(made.plan.update, interval == 1 ? UpdateMode::kSpeculative : UpdateMode::kAuto);
    EXPECT_EQ(made.filling_steps, interval == 1 ? kFillingSteps : kFillingSteps + 2);
    const Plan tried = make_plan(setup.model.spec(), made.plan);
    EXPECT_EQ(tried.commit_interval, interval);
    EXPECT_TRUE(tried.any_speculated());
    EXPECT_EQ(tried.other_slots.empty(), interval == 1);
  }
  plan.update = UpdateMode::kDeferred;
  EXPECT_EQ(make_trial({}, setup, plan).filling_steps, kFillingSteps);
  plan.update = UpdateMode::kReplay;
  plan.commit_interval = 1;
  EXPECT_EQ(make_trial({}, setup, plan).plan.update, UpdateMode::kReplay) << "it is named";
}

TEST(MakeTrial, of_a_derived_chunk_size_keeps_to_it) {
  RunSetup setup{.model = Gpt2({.vocab_size = 256, .n_positions = 32, .n_embd = 32, .n_layer = 4, .n_head = 2}, {})};
  const Trial made = make_trial({}, setup, {.device_bytes = 64 * kMiB, .host_bytes = 64 * kMiB});
  EXPECT_GT(made.chunk_elements, 0);
  EXPECT_EQ(made.plan.chunk_elements, made.chunk_elements);
}

TEST(Choose, takes_the_fastest_median) {
  EXPECT_EQ(trial(kGiven, {500, 100, 90}).measured_ms(), 100);
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

TEST(MeanOfInterval, counts_a_commit_among_fewer_steps_as_rarely_as_it_comes) {
  EXPECT_EQ(steps_to_measure(1), 1);
  EXPECT_EQ(steps_to_measure(10), 10);
  EXPECT_EQ(steps_to_measure(500), 10);
  using Steps = IntervalSteps;
  EXPECT_DOUBLE_EQ((Steps{.committing = {6, 8}, .others = {}}.mean(1)), 7);
  EXPECT_DOUBLE_EQ((Steps{.committing = {8}, .others = {2, 2}}.mean(3)), 4);
  EXPECT_DOUBLE_EQ((Steps{.committing = {8}, .others = {1, 3}}.mean(60)), 2.1);
  EXPECT_DOUBLE_EQ((Steps{.committing = {7, 9}, .others = {1, 3}}.mean(60)), 2.1) << "two of them fell in";
}

// Measured steps come in whole commit intervals, after those that fill the pipeline; a store is written before each
// round.
TEST(PredictedSeconds, are_of_all_rounds_of_all_trials_with_their_stores) {
  std::vector<Trial> trials = {trial(kGiven, {}), trial(kSameBits, {})};
  for (Trial& each : trials) {
    each.disk_bytes = 2'000'000'000;
    each.plan.speeds = StepSpeeds{.machine = {.write_gb_per_s = 4}};
    each.candidate.step_ms = 100;
  }
  trials[1].commit_interval = 3;
  const TrialOptions options{.rounds = 3, .steps = 4};
  EXPECT_DOUBLE_EQ(predicted_seconds(trials, options),
                   3 * (0.5 + 0.1 * (kFillingSteps + 4)) + 3 * (0.5 + 0.1 * (kFillingSteps + 6)));
  EXPECT_EQ(steps_of_round_words(trials, options), "up to 8 steps");
  trials[1].commit_interval = 2;
  EXPECT_EQ(steps_of_round_words(trials, options), "6 steps");
}

TEST(ReportWords, say_of_each_trial_whether_its_bits_are_the_given_ones) {
  using ::testing::HasSubstr;
  RunSetup as_given{.model = Gpt2({.n_layer = 1}, {})}, at_once{.model = Gpt2({.n_layer = 1}, {})};
  as_given.config.batch = {.train = 2, .micro = 1, .accumulation = 2};
  at_once.config.batch = {.train = 2, .micro = 2, .accumulation = 1};
  std::vector<Trial> trials = {trial(kGiven, {100}), trial(kSameBits, {90}), trial(kOtherBits, {50})};
  trials[0].setup = trials[1].setup = &as_given;
  trials[2].setup = &at_once;
  const auto words = [&](size_t chosen) { return report_words({.trials = trials, .chosen = trials[chosen]}); };
  const std::string text = words(2);
  trials[2].plan.host_bytes = 77;
  EXPECT_THAT(report_json({.trials = trials, .chosen = trials[2]}),
              ::testing::ContainsRegex("\"host_memory\": 77,[^}]*\"same_bits\": false,[^}]*\"chosen\": true"));
  EXPECT_THAT(text, ::testing::MatchesRegex("micro-batches[^\n]*\n2 x 1 [^\n]*  as given\n2 x 1 [^\n]*  same bits\n"
                                            "1 x 2 [^\n]*  other bits \\(\\*\\), chosen\n\\(\\*\\) .*"));
  EXPECT_THAT(report_words({.trials = trials, .chosen = trials[0], .predicted = 12, .unfit = 5, .file = "new.json"}),
              HasSubstr("\n12 settings predicted, 5 more do not fit the budgets; written to new.json"));
  trials.pop_back();
  EXPECT_THAT(words(1), ::testing::Not(HasSubstr("(*)")));
  EXPECT_THAT(words(1), HasSubstr("same bits, chosen"));
}

TEST(ReportWords, have_what_was_predicted_beside_what_was_measured_and_its_tokens_a_second) {
  using ::testing::ContainsRegex, ::testing::HasSubstr;
  RunSetup setup{.model = Gpt2({.n_layer = 1}, {})};
  std::vector<Trial> trials = {trial(kGiven, {100})};
  trials[0].setup = &setup;
  trials[0].candidate.step_ms = 80;
  const TuneReport report{.trials = trials, .chosen = trials[0], .tokens_of_step = 2048, .predicted = 12, .unfit = 5};
  EXPECT_THAT(report_words(report), ContainsRegex(" 80\\.0 ms +100\\.0 ms +20480  as given, chosen\n"));
  const std::string json = report_json(report);
  for (const char* figure : {"\"predicted\": 12,", "\"unfit\": 5,", "\"predicted_ms\": 80.0,",
                             "\"measured_ms\": 100.0,", "\"tokens_per_s\": 20480.0,"}) {
    EXPECT_THAT(json, HasSubstr(figure));
  }
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
