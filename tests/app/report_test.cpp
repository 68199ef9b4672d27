// `sluice report`: one page that stands alone.
#include <set>
#include <sstream>

#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class ReportTest : public CommandTest {
 protected:
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(file(name)).rdbuf();
    return text.str();
  }
};

TEST_F(ReportTest, is_one_page_with_every_part_and_nothing_to_fetch) {
  ASSERT_EQ(train("run").exit_code, 0);
  ASSERT_TRUE(fs::exists(file("run/timeline.json")));
  const Ended ended = sluice({"report", "@run"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr(file("run/report.html")));
  const std::string page = text_of("run/report.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* part : {"What bound it", "Loss", "Throughput", "Lanes", "One step, lane by lane", "Memory",
                           "Configuration", "prefers-color-scheme:dark", "compute h.0 #0 forward", "<svg"}) {
    EXPECT_THAT(page, testing::HasSubstr(part));
  }
  for (const char* outside : {"http:", "https:", "src=", "@import", "<link"}) {
    EXPECT_THAT(page, testing::Not(testing::HasSubstr(outside)));
  }
  EXPECT_THAT(page, testing::Not(testing::ContainsRegex("[^a-zA-Z](nan|inf)[^a-zA-Z]")));
}

TEST_F(ReportTest, puts_the_plans_prediction_beside_what_was_measured) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  std::vector<Json> lines = metrics("run");
  std::ofstream stream(file("run/metrics.jsonl"));
  for (Json& line : lines) {
    line["predicted_step_ms"] = 1234567.0;
    stream << line.dump() << "\n";
  }
  stream.close();
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
  EXPECT_THAT(text_of("run/report.html"), testing::HasSubstr("The plan predicted 20.6 min a step"));
}

TEST_F(ReportTest, says_what_is_missing_of_a_run_that_has_no_steps_yet) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  fs::remove(file("run/timeline.json"));
  std::ofstream(file("run/metrics.jsonl")).close();
  ASSERT_EQ(sluice({"report", "@run", "--out", "@page.html"}).exit_code, 0);
  EXPECT_THAT(text_of("page.html"), testing::HasSubstr("No step has been sampled yet"));
}

TEST_F(ReportTest, of_a_folder_without_a_run_is_refused) {
  const Ended ended = sluice({"report", "@nothing"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("no run is there"));
}

TEST_F(ReportTest, a_trace_asked_for_on_the_command_line_holds_every_lane) {
  ASSERT_EQ(train("run", {"--trace", "@hops.json", "--steps", "2"}).exit_code, 0);
  const Json trace = Json::parse(text_of("hops.json"));
  std::set<int> rows;
  for (const Json& event : trace["traceEvents"]) rows.insert(event["tid"].get<int>());
  EXPECT_EQ(rows, (std::set<int>{0, 1, 2, 3, 4, 5}));
}

TEST_F(ReportTest, the_log_says_which_lane_bound_the_step_and_how_far_the_others_were) {
  const Ended ended = train("run", {"--steps", "2"});
  EXPECT_THAT(ended.err, testing::ContainsRegex("bound by [a-z]+ [0-9]+ ms; [a-z]+ [0-9]+ %, [a-z]+ [0-9]+ %, "
                                                "[a-z]+ [0-9]+ %, [a-z]+ [0-9]+ %, [a-z]+ [0-9]+ %"));
}

}  // namespace
}  // namespace sluice
