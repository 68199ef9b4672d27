// What the report takes for a run's steady step.
#include "app/run_data.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RunFolder, knows_its_own_files_by_every_path_to_them) {
  const std::filesystem::path here = std::filesystem::current_path();
  for (const std::filesystem::path& folder : {here, here / "", here / ".", std::filesystem::path()}) {
    EXPECT_TRUE(RunFolder(folder).is_own("metrics.jsonl")) << folder;
    EXPECT_TRUE(RunFolder(folder).is_own(here / "sluice-0.swap")) << folder;
    EXPECT_FALSE(RunFolder(folder).is_own("mine.json")) << folder;
    EXPECT_FALSE(RunFolder(folder).is_own("elsewhere/metrics.jsonl")) << folder;
    EXPECT_FALSE(RunFolder(folder).is_own("")) << folder;
  }
}

RunData run_of(int64_t commit_interval, const std::vector<double>& step_ms) {
  RunData run;
  run.commit_interval = commit_interval;
  for (const double ms : step_ms) {
    const auto step = static_cast<int64_t>(run.steps.size()) + 1;
    run.steps.push_back({.step = step, .since_start = step, .step_ms = ms, .lanes = {}});
    run.steps.back().lanes[0].ms = ms / 2;
  }
  return run;
}

TEST(SteadyFigures, leave_out_the_first_steps_where_there_are_enough) {
  EXPECT_EQ(steady_figures(run_of(1, {900, 800, 10, 30, 20})).step_ms, 20);
  EXPECT_EQ(steady_figures(run_of(1, {900, 800, 10})).step_ms, 800);
  EXPECT_EQ(steady_figures(run_of(1, {})).step_ms, 0);
}

TEST(SteadyFigures, are_of_the_last_start_alone) {
  RunData run = run_of(1, {900, 900, 900, 900, 900, 900, 10, 30, 20});
  run.steps[6].since_start = 1;
  EXPECT_EQ(steady_figures(run).step_ms, 20);
  for (StepFiguresOfRun& step : run.steps) step.since_start = 0;  // of an earlier build
  EXPECT_EQ(steady_figures(run).step_ms, 900);
}

TEST(SteadyFigures, spread_a_rare_commit_over_its_interval) {
  const Steady steady = steady_figures(run_of(3, {500, 500, 10, 10, 100, 10, 10, 100}));
  EXPECT_EQ(steady.step_ms, 40);
  EXPECT_EQ(steady.steps_of_mean, 3);
  EXPECT_EQ(steady.lanes[0].ms, 20);
  EXPECT_EQ(steady_figures(run_of(10, {500, 10, 20})).step_ms, 20) << "no whole interval yet";
}

TEST(SteadyFigures, have_the_throughput_of_their_step) {
  RunData run = run_of(3, {500, 500, 10, 10, 100, 10, 10, 100});
  for (StepFiguresOfRun& step : run.steps) step.tokens_per_s = 60 / (step.step_ms / 1e3);
  EXPECT_DOUBLE_EQ(steady_figures(run).tokens_per_s, 60 / 0.040);
}

TEST(SteadyFigures, compare_predictions_with_the_steps_that_have_one) {
  RunData run = run_of(1, {500, 500, 10, 30, 30, 10, 30});
  EXPECT_FALSE(steady_figures(run).measured_as_predicted_ms);
  run.steps[2].predicted_step_ms = run.steps[5].predicted_step_ms = 9;
  EXPECT_EQ(steady_figures(run).step_ms, 30);
  EXPECT_EQ(steady_figures(run).measured_as_predicted_ms, 10);
}

TEST(SteadyFigures, of_what_some_steps_do_not_say_are_those_of_the_others) {
  RunData run = run_of(2, {10, 10, 10, 10});
  EXPECT_FALSE(steady_figures(run).drive_ms);
  run.steps[2].drive_ms = 6;
  EXPECT_EQ(steady_figures(run).drive_ms, 6);
}

// Reads of state are of what is at home on the drives; what is written beyond them goes there with commits alone.
TEST(SteadyFigures, know_whether_rarer_commits_write_less) {
  const auto rarer = [](int64_t interval, const std::string& update, int64_t read, int64_t written) {
    RunData run = run_of(interval, {10, 10, 10, 10});
    run.update = update;
    for (StepFiguresOfRun& step : run.steps) step.state_read_bytes = read, step.state_written_bytes = written;
    return steady_figures(run).rarer_commits;
  };
  EXPECT_EQ(rarer(1, "auto", 100, 200), Steady::RarerCommits::kHelp);
  EXPECT_EQ(rarer(2, "deferred", 0, 200), Steady::RarerCommits::kHelp);
  EXPECT_EQ(rarer(1, "auto", 200, 200), Steady::RarerCommits::kNoHelp);  // all of it is at home on the drives
  EXPECT_EQ(rarer(10, "auto", 100, 200), Steady::RarerCommits::kNoHelp);
  EXPECT_EQ(rarer(1, "speculative", 100, 200), Steady::RarerCommits::kNoHelp);
  EXPECT_EQ(rarer(1, "replay", 100, 200), Steady::RarerCommits::kNoHelp);
  EXPECT_EQ(rarer(1, "auto", 0, 0), Steady::RarerCommits::kNoHelp);
}

TEST(SteadyFigures, know_whether_rare_commits_take_much_of_the_time) {
  const auto rarer = [](double commit_ms) {
    RunData run = run_of(10, {10, 10, 10, 10, 10, commit_ms, 10, 10, 10, 10});
    run.update = "auto";
    run.steps[5].state_written_bytes = 100;
    return steady_figures(run).rarer_commits;
  };
  EXPECT_EQ(rarer(12), Steady::RarerCommits::kNoHelp);
  EXPECT_EQ(rarer(14), Steady::RarerCommits::kHelp);
}

}  // namespace
}  // namespace sluice
