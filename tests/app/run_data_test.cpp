// What the report takes for a run's steady step.
#include "app/run_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/fakes/test_store.h"

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

// A folder with a run's files that report reads.
class ReadRun : public testing::Test {
 protected:
  ReadRun() { std::ofstream(folder_.path() / "config.json") << R"({"sluice": {}})"; }
  RunData read(const std::vector<std::string>& lines) const {
    std::ofstream file(folder_.path() / "metrics.jsonl");
    for (const std::string& line : lines) file << line << "\n";
    file.close();
    return read_run(RunFolder(folder_.path()));
  }
  // As earlier builds wrote it: without since_start, drive_ms, predicted_step_ms.
  static std::string line_of(int step, const std::string& more = "") {
    std::string lanes, tiers;
    for (const char* lane : {"read", "write", "upload", "download", "compute", "update"})
      lanes += fmt::format(R"({}"{}": {{"ms": 5, "bytes": 7}})", lanes.empty() ? "" : ", ", lane);
    for (const char* tier : {"device", "host", "nvme"})
      tiers += fmt::format(R"({}"{}": {{"budget_bytes": null, "peak_bytes": 9}})", tiers.empty() ? "" : ", ", tier);
    return fmt::format(R"({{"step": {}, "loss": 2.5, "step_ms": 10, "tokens_per_s": 100, )"
                       R"("lanes": {{{}}}, "memory": {{{}, "rss_bytes": 11}}{}}})",
                       step, lanes, tiers, more);
  }
  static std::string with(const std::string& from, const std::string& to) {
    std::string line = line_of(3);
    return line.replace(line.find(from), from.size(), to);
  }
  TempFolder folder_;
};

TEST_F(ReadRun, leaves_out_lines_that_no_run_writes_and_counts_them) {
  for (const std::string& damaged : {std::string(R"({"step":3})"),
                                     std::string("{\"step\":3,\"lo"),
                                     std::string("[3]"),
                                     with("\"step_ms\": 10", "\"step_ms\": -5"),
                                     with("\"step_ms\": 10", "\"step_ms\": 0"),
                                     with("\"step_ms\": 10", "\"step_ms\": null"),
                                     with("\"step_ms\": 10", "\"step_ms\": \"fast\""),
                                     with("\"step_ms\": 10", "\"step_ms\": 1e300"),
                                     with("\"step_ms\": 10, ", ""),
                                     with("\"loss\": 2.5", "\"loss\": \"x\""),
                                     with("\"loss\": 2.5, ", ""),
                                     with("\"step\": 3", "\"step\": -3"),
                                     with("\"step\": 3", "\"step\": 3.5"),
                                     with("\"tokens_per_s\": 100", "\"tokens_per_s\": -1"),
                                     with("\"ms\": 5", "\"ms\": -5"),
                                     with("\"bytes\": 7", "\"bytes\": \"all\""),
                                     with("\"peak_bytes\": 9", "\"peak_bytes\": \"all\""),
                                     with("\"memory\"", "\"mem\""),
                                     line_of(3, R"(, "drive_ms": -1)"),
                                     line_of(3, R"(, "predicted_step_ms": 0)"),
                                     line_of(3, R"(, "since_start": "one")")}) {
    const RunData run = read({line_of(1), line_of(2), damaged});
    EXPECT_EQ(run.steps.size(), 2u) << damaged;
    EXPECT_EQ(run.damaged_lines, 1) << damaged;
    EXPECT_EQ(steady_figures(run).step_ms, 10) << damaged;
    ASSERT_EQ(run.memory.size(), 3u) << damaged;  // those of the line before
    EXPECT_EQ(run.memory[2].peak_bytes, 9) << damaged;
    EXPECT_EQ(run.resident_bytes, 11) << damaged;
  }
}

TEST_F(ReadRun, takes_lines_of_earlier_builds_and_losses_that_are_not_finite) {
  const RunData run = read({line_of(1), with("\"loss\": 2.5", "\"loss\": null"),
                            line_of(4, R"(, "since_start": 4, "drive_ms": 6, "predicted_step_ms": 9.5)")});
  EXPECT_EQ(run.damaged_lines, 0);
  ASSERT_EQ(run.steps.size(), 3u);
  EXPECT_FALSE(run.steps[0].drive_ms || run.steps[0].predicted_step_ms);
  EXPECT_FALSE(run.steps[1].loss);
  EXPECT_EQ(run.steps[2].since_start, 4);
  EXPECT_EQ(run.steps[2].drive_ms, 6);
  EXPECT_EQ(run.steps[2].predicted_step_ms, 9.5);
}

TEST_F(ReadRun, takes_the_validation_of_its_end_and_of_no_end_that_it_has_gone_on_from) {
  const std::string end = R"({"final":true,"validation_loss":4.5,"validation_tokens":64,"unigram_nats":5.25})";
  const RunData ended = read({line_of(1), end});
  ASSERT_TRUE(ended.validation);
  EXPECT_EQ(ended.validation->loss, 4.5);
  EXPECT_EQ(ended.validation->tokens, 64);
  EXPECT_EQ(ended.validation->unigram_nats, 5.25);
  EXPECT_FALSE(read({line_of(1), end, line_of(2)}).validation);
  EXPECT_FALSE(read({line_of(1), end, R"({"final":true})"}).validation);  // that one did not validate
  const RunData diverged =
      read({line_of(1), R"({"final":true,"validation_loss":null,"validation_tokens":64,"unigram_nats":5.25})"});
  ASSERT_TRUE(diverged.validation);
  EXPECT_FALSE(diverged.validation->loss);
  EXPECT_EQ(read({line_of(1), R"({"final":true})"}).damaged_lines, 0);
  for (const char* damaged : {R"({"final":true,"validation_loss":"low","validation_tokens":64,"unigram_nats":5.25})",
                              R"({"final":true,"validation_loss":4.5})"}) {
    const RunData run = read({line_of(1), damaged});
    EXPECT_FALSE(run.validation) << damaged;
    EXPECT_EQ(run.damaged_lines, 1) << damaged;
  }
}

TEST_F(ReadRun, takes_what_was_configured_and_what_each_lane_moved_of_the_state) {
  std::ofstream(folder_.path() / "config.json") << R"({
    "model": {"n_layer": 3, "n_embd": 72, "vocab_size": 331}, "data": {"sequence_length": 33}, "fp16": {"enabled": true},
    "train_batch_size": 12, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "sluice": {"device_memory": 1048576, "host_memory": 2097152, "nvme": ["/a", "/b"], "commit_interval": 5}})";
  std::string line = line_of(1);
  for (const auto& [lane, bytes] : {std::pair("read", "21"), std::pair("write", "43")}) {
    const std::string key = fmt::format("\"{}\": {{", lane);
    line.insert(line.find(key) + key.size(), fmt::format("\"state_bytes\": {}, \"weights_bytes\": 5, ", bytes));
  }
  const RunData run = read({line});
  EXPECT_EQ(run.steps.at(0).state_read_bytes, 21);
  EXPECT_EQ(run.steps.at(0).state_written_bytes, 43);
  EXPECT_EQ(run.commit_interval, 5);
  const std::vector<std::pair<std::string, std::string>> facts = {{"layers", "3"},
                                                                  {"width", "72"},
                                                                  {"vocabulary", "331"},
                                                                  {"tokens in a sample", "33"},
                                                                  {"samples in a step", "12"},
                                                                  {"micro-batches", "2"},
                                                                  {"precision", "fp16"},
                                                                  {"device memory", "1.0 MiB"},
                                                                  {"host memory", "2.0 MiB"},
                                                                  {"drives", R"(["/a","/b"])"},
                                                                  {"steps between commits", "5"}};
  EXPECT_EQ(run.facts, facts);
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

// Means of the intervals, of which none shares a step with another.
TEST(SteadyFigures, take_each_step_into_one_interval_alone) {
  RunData run = run_of(2, {500, 500, 10, 20, 70, 80, 30, 40});
  for (StepFiguresOfRun& step : run.steps) step.lanes[0].bytes = 1000;
  const Steady steady = steady_figures(run);
  EXPECT_EQ(steady.step_ms, 35) << "of 15, 75 and 35";
  EXPECT_EQ(steady.lanes[0].bytes, 1000);
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
