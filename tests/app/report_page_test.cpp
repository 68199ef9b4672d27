// The numbers of a run's page stand where they belong.
#include "app/report_page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/bytes.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void set_lane(StepFiguresOfRun& step, Lane lane, const LaneFigures& figures) {
  step.lanes[static_cast<size_t>(lane)] = figures;
}

// Steps of 200 ms: reads take 50 of them, writes 180, compute 120.
RunData run_of_six_steps() {
  RunData run{.name = "<small>", .folder = "runs/<small>"};
  for (int64_t number = 1; number <= 6; ++number) {
    StepFiguresOfRun step{.step = 100 + number,
                          .since_start = number,
                          .loss = 7 - static_cast<double>(number),
                          .step_ms = 200,
                          .tokens_per_s = 1000,
                          .skipped = number == 2,
                          .drive_ms = 190,
                          .lanes = {}};
    set_lane(step, Lane::kRead, {.ms = 50, .bytes = 100'000'000, .predicted_ms = 300.0});
    set_lane(step, Lane::kWrite, {.ms = 180, .bytes = 90'000'000, .predicted_ms = {}});
    set_lane(step, Lane::kCompute, {.ms = 120, .bytes = 0, .predicted_ms = {}});
    run.steps.push_back(step);
  }
  run.memory = {{.name = "device", .budget_bytes = 8 * kMiB, .peak_bytes = 2 * kMiB},
                {.name = "nvme", .budget_bytes = {}, .peak_bytes = 64 * kMiB}};
  return run;
}

std::string page_of(const RunData& run, const std::optional<WouldHelp>& help = {}) {
  return report_page(run, std::nullopt, help);
}

TEST(PageOfARun, has_tiles_of_its_first_and_last_step_and_of_what_bound_it) {
  RunData run = run_of_six_steps();
  EXPECT_THAT(page_of(run), AllOf(HasSubstr("<span>steps</span><b>106</b><small>1 skipped</small>"),
                                  HasSubstr("<span>loss</span><b>1.0000</b><small>first 6.0000</small>"),
                                  HasSubstr("<span>throughput</span><b>1000 tokens/s</b>"),
                                  HasSubstr("<span>bound by</span><b>nvme</b><small>busy 95 % of the step (reads 50 "
                                            "ms, writes 180 ms)")));
  for (StepFiguresOfRun& step : run.steps) step.skipped = false, step.drive_ms = 150;
  EXPECT_THAT(page_of(run), AllOf(HasSubstr("none skipped"), HasSubstr("<span>busiest</span><b>nvme</b>")));
}

TEST(PageOfARun, names_the_run_as_text_and_not_as_a_part_of_the_page) {
  EXPECT_THAT(page_of(run_of_six_steps()),
              AllOf(HasSubstr("<title>&lt;small&gt; - sluice</title>"), HasSubstr("<h1>&lt;small&gt;</h1>"),
                    HasSubstr("runs/&lt;small&gt;</p>")));
}

// Bars are of the longest time, percents of the step, speeds of the lane's own time.
TEST(PageOfARun, has_a_row_for_each_lane_with_its_time_its_share_its_bytes_and_its_speed) {
  const std::string page = page_of(run_of_six_steps());
  EXPECT_THAT(page, AllOf(HasSubstr("<h2>Lanes, median of the steps</h2>"),
                          HasSubstr("<tr><th>read</th><td class=\"wide\"><div class=\"bar\"><i class=\"bound\" "
                                    "style=\"width:16.7%\"></i><s style=\"left:100.0%\" title=\"predicted\"></s></div>"
                                    "</td><td>50 ms</td><td>300 ms</td><td>25 %</td><td>95.4 MiB</td><td>2.00</td>"),
                          HasSubstr("<td>180 ms</td><td>-</td><td>90 %</td><td>85.8 MiB</td><td>0.50</td>"),
                          HasSubstr("<td>120 ms</td><td>-</td><td>60 %</td><td>-</td><td>-</td>")));
  RunData rare = run_of_six_steps();
  rare.commit_interval = 2;
  EXPECT_THAT(page_of(rare), HasSubstr("<h2>Lanes, a step with its share of a commit</h2>"));
}

TEST(PageOfARun, says_how_much_is_left_without_what_bound_it) {
  EXPECT_THAT(what_bound(steady_figures(run_of_six_steps()), std::nullopt),
              HasSubstr("The next, compute, needs 120 ms: with the bound gone altogether a step could be 1.7 times"));
}

TEST(PageOfARun, draws_losses_and_throughputs_and_a_gap_where_a_loss_is_not_finite) {
  RunData run = run_of_six_steps();
  run.steps[3].loss.reset();
  run.steps[4].tokens_per_s = 1234;
  const std::string page = page_of(run);
  EXPECT_THAT(page, AllOf(HasSubstr("<title>step 103: 4</title>"), Not(HasSubstr("<title>step 104: 0</title>")),
                          HasSubstr("<title>step 105: 1234</title>"), Not(HasSubstr(": 200</title>"))));
}

TEST(PageOfARun, shows_peaks_against_budgets) {
  const std::string bar = "<td class=\"wide\"><div class=\"bar\"><i class=\"free\" style=\"width:{}%\"></i></div></td>";
  EXPECT_THAT(page_of(run_of_six_steps()),
              AllOf(HasSubstr("<tr><th>device</th>" + fmt::format(fmt::runtime(bar), "25.0") +
                              "<td>2.0 MiB</td><td>8.0 MiB</td>"),
                    HasSubstr("<td>64.0 MiB</td><td>none: the store's file</td>")));
}

// What hardly helps is no help; bars are of the best.
TEST(PageOfARun, has_the_offers_that_help_and_names_the_others) {
  const WouldHelp help{.step_ms = 200,
                       .tokens_per_s = 1000,
                       .offers = {{.with = "one more drive", .step_ms = 100, .tokens_per_s = 2000},
                                  {.with = "+1.0 GiB host memory", .step_ms = 199.5, .tokens_per_s = 1004},
                                  {.with = "2x tokens per step", .step_ms = {}}}};
  const std::string page = page_of(run_of_six_steps(), help);
  EXPECT_THAT(page,
              AllOf(HasSubstr("<i class=\"free\" style=\"width:50.0%\"></i></div></td><td>200 ms</td><td>1000</td>"),
                    HasSubstr("<i class=\"free\" style=\"width:100.0%\"></i></div></td><td>100 ms</td><td>2000"
                              "</td><td>+100.0 %</td>"),
                    HasSubstr("<p>No help: +1.0 GiB host memory.</p>"), HasSubstr("does not fit the budgets"),
                    HasSubstr("Most would help, by the planner's prediction: one more drive (+100 % tokens/s)")));
}

TEST(PageOfARun, says_of_steps_that_the_plan_did_not_predict_what_they_were) {
  RunData run = run_of_six_steps();
  for (StepFiguresOfRun& step : run.steps) step.skipped = step.step > 104, step.undone = step.step > 103;
  EXPECT_THAT(
      page_of(run, WouldHelp{.step_ms = 110, .tokens_per_s = 10, .offers = {}}),
      HasSubstr("The plan predicted 110 ms for a step in the middle of a run; measured were 200 ms, of steps that "
                "are not like it: 1 of 4 ran updates in the backward that were undone, 2 of 4 updated nothing "
                "(skipped)."));
}

TEST(PageOfARun, with_next_to_nothing_beside_what_bound_it_names_no_number) {
  RunData run = run_of_six_steps();
  for (StepFiguresOfRun& step : run.steps) set_lane(step, Lane::kCompute, {.ms = 1, .bytes = 0, .predicted_ms = {}});
  EXPECT_THAT(what_bound(steady_figures(run), std::nullopt), HasSubstr("could be more than 10 times as fast"));
}

// A lane's hops that ran at once have a thread each.
TEST(TimelineOfAStep, begins_with_its_first_hop_and_has_a_row_for_each_lane) {
  const TempFolder folder;
  std::ofstream(folder.path() / "timeline.json") << R"({"traceEvents": [
    {"ph": "M", "name": "thread_name", "tid": 1, "args": {"name": "read"}},
    {"ph": "M", "name": "thread_name", "tid": 2, "args": {"name": "read 2"}},
    {"ph": "X", "tid": 2, "ts": 1500, "dur": 500, "name": "second", "cat": "weights"},
    {"ph": "X", "tid": 1, "ts": 1000, "dur": 2000, "name": "first", "cat": "state"}]})";
  const Timeline timeline = read_timeline(folder.path() / "timeline.json");
  EXPECT_EQ(timeline.ms, 2);
  ASSERT_EQ(timeline.rows.size(), static_cast<size_t>(kLaneCount));
  const TimelineRow& reads = timeline.rows[static_cast<size_t>(Lane::kRead)];
  EXPECT_EQ(reads.name, "read");
  ASSERT_EQ(reads.bars.size(), 2u);
  EXPECT_EQ(reads.bars[0].words, "second");
  EXPECT_EQ(reads.bars[0].kind, "weights");
  EXPECT_EQ(reads.bars[0].begin_ms, 0.5);
  EXPECT_EQ(reads.bars[0].end_ms, 1);
  EXPECT_EQ(reads.bars[1].begin_ms, 0);
}

TEST(PageOfARun, advises_rarer_commits_only_where_the_drives_bind) {
  RunData run = run_of_six_steps();
  for (StepFiguresOfRun& step : run.steps) step.state_written_bytes = 100, step.drive_ms = 20;
  const Steady compute_binds = steady_figures(run);
  ASSERT_EQ(compute_binds.rarer_commits, Steady::RarerCommits::kHelp);
  EXPECT_THAT(what_bound(compute_binds, std::nullopt), Not(HasSubstr("commit_interval")));
  for (StepFiguresOfRun& step : run.steps) step.drive_ms = 190;
  EXPECT_THAT(what_bound(steady_figures(run), std::nullopt), HasSubstr("commit_interval"));
}

}  // namespace
}  // namespace sluice
