// `sluice report`: one page that stands alone.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "app/what_if.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class ReportTest : public CommandTest {
 protected:
  // What `sluice report` says where every step of "run" took 100 ms and lanes were busy so long; others not at all.
  std::string report_of(const std::map<std::string, double>& busy_ms) const {
    std::vector<Json> lines = metrics("run");
    std::ofstream stream(file("run/metrics.jsonl"));
    for (Json& line : lines) {
      line["step_ms"] = 100.0;
      for (Json& lane : line["lanes"]) lane["ms"] = 0;
      line.erase("drive_ms");
      for (const auto& [lane, ms] : busy_ms) {
        if (lane == "drive") {
          line["drive_ms"] = ms;
        } else {
          line["lanes"][lane]["ms"] = ms;
        }
      }
      stream << line.dump() << "\n";
    }
    stream.close();
    const Ended ended = sluice({"report", "@run"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  }
};

// Speeds that need no measuring, and a drive in which most of a step passes.
constexpr const char* kSlowMachine = R"({
  "read_gb_per_s": 0.01, "write_gb_per_s": 0.01, "mixed_gb_per_s": 0.01, "upload_gb_per_s": 10,
  "download_gb_per_s": 10, "update_ns_per_element": 0.5, "checksum_gb_per_s": 20, "close_gb_per_s": 5,
  "compute_tflop_per_s": 1, "update_threads": 1, "cores": 2})";
constexpr const char* kOffers = "What would help, by the planner's prediction";

TEST_F(ReportTest, is_one_page_with_every_part_and_nothing_to_fetch) {
  ASSERT_EQ(train("run").exit_code, 0);
  ASSERT_TRUE(fs::exists(file("run/timeline.json")));
  const Ended ended = sluice({"report", "@run"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr(file("run/report.html")));
  const std::string page = text_in("run/report.html");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  for (const char* part : {"What bound it", "Loss", "Throughput", "Lanes", "One step, lane by lane", "Memory",
                           "Configuration", "prefers-color-scheme:dark", "compute h.0 #0 forward", "<svg"}) {
    EXPECT_THAT(page, testing::HasSubstr(part));
  }
  EXPECT_THAT(page, testing::HasSubstr("<dt>device memory</dt><dd>2.0 MiB</dd>"));
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
  EXPECT_THAT(text_in("run/report.html"), testing::HasSubstr("The plan predicted 20.6 min a step"));
}

TEST_F(ReportTest, shows_a_loss_that_is_not_finite_as_a_gap_and_never_as_0) {
  ASSERT_EQ(train("run").exit_code, 0);
  std::vector<Json> lines = metrics("run");
  std::ofstream stream(file("run/metrics.jsonl"));
  for (Json& line : lines) {
    const bool diverged = line.contains("step") && (line["step"] == 3 || line["step"] == 6);
    if (diverged) line["loss"] = nullptr;  // as NaN is written
    stream << line.dump() << "\n";
  }
  stream.close();
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
  const std::string page = text_in("run/report.html");
  EXPECT_THAT(page, testing::HasSubstr(fmt::format("<span>loss</span><b>not finite</b><small>first {:.4f}</small>",
                                                   lines.front()["loss"].get<double>())));
  const std::string chart =
      page.substr(page.find("loss by step"), page.find("tokens/s by step") - page.find("loss by step"));
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (size_t at = chart.find(part); at != std::string::npos; at = chart.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<polyline"), 2);  // steps 1 and 2, 4 and 5
  EXPECT_EQ(count("<circle"), 4);
}

TEST_F(ReportTest, says_what_is_missing_of_a_run_that_has_no_steps_yet) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  fs::remove(file("run/timeline.json"));
  std::ofstream(file("run/metrics.jsonl")).close();
  ASSERT_EQ(sluice({"report", "@run", "--out", "@page.html"}).exit_code, 0);
  EXPECT_THAT(text_in("page.html"), testing::AllOf(testing::HasSubstr("No step has been sampled yet"),
                                                   testing::Not(testing::HasSubstr("nan"))));
}

TEST_F(ReportTest, leaves_out_a_timeline_that_it_cannot_understand_and_says_so) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const std::string whole = text_in("run/timeline.json");
  for (const std::string& broken :
       {whole.substr(0, whole.size() / 2), std::string("[1]"), std::string("{\"traceEvents\": [{}]}")}) {
    std::ofstream(file("run/timeline.json")) << broken;
    const Ended ended = sluice({"report", "@run", "--out", "@page.html"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, testing::HasSubstr("the report leaves out a step's timeline"));
    EXPECT_THAT(ended.err, testing::HasSubstr("remove it, or go on with the run"));
    EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("exception")));
    EXPECT_THAT(text_in("page.html"), testing::HasSubstr("timeline.json of the run's folder cannot be read"));
  }
}

TEST_F(ReportTest, leaves_out_damaged_lines_of_metrics_and_says_how_many) {
  ASSERT_EQ(train("run", {"--steps", "3"}).exit_code, 0);
  const std::string whole = text_in("run/metrics.jsonl");
  std::ofstream(file("run/metrics.jsonl")) << whole << "{\"step\":4}\n{\"step\":5,\"step_ms\":-5,\"loss\":\"x\"}\n";
  const Ended ended = sluice({"report", "@run"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("leaves out 2 damaged lines of " + file("run/metrics.jsonl")));
  std::ofstream(file("run/metrics.jsonl")) << whole << "{\"step\":4}\n";
  EXPECT_THAT(sluice({"report", "@run"}).err, testing::HasSubstr("leaves out 1 damaged line of "));
  EXPECT_THAT(text_in("run/report.html"), testing::AllOf(testing::HasSubstr("<span>steps</span><b>3</b>"),
                                                         testing::HasSubstr("<tr><th>nvme</th>")));
}

TEST_F(ReportTest, goes_to_standard_output_and_nowhere_else_where_the_file_is_a_dash) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const fs::path dash = fs::current_path() / "-";
  ASSERT_FALSE(fs::exists(dash));
  const Ended ended = sluice({"report", "@run", "--out", "-"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(ended.out.starts_with("<!doctype html>"));
  EXPECT_TRUE(ended.out.ends_with("</html>\n"));
  EXPECT_FALSE(fs::exists(dash));
  EXPECT_FALSE(fs::exists(file("run/report.html")));
}

TEST_F(ReportTest, names_the_drives_where_reads_and_writes_together_take_longest) {
  ASSERT_EQ(train("run", {"--steps", "3"}).exit_code, 0);
  fs::remove(file("run/would_help.json"));  // no prediction says what would help
  const std::string both = report_of({{"read", 55}, {"write", 50}, {"compute", 60}});
  EXPECT_THAT(both, testing::HasSubstr("bound by the NVMe drives, which reads and writes share: busy up to 100 % of"));
  EXPECT_THAT(both, testing::HasSubstr("(reads 55 ms, writes 50 ms)"));
  EXPECT_THAT(both, testing::HasSubstr("one more drive"));
  EXPECT_THAT(both, testing::HasSubstr("The next, compute, needs 60 ms"));
  const std::string page = text_in("run/report.html");
  EXPECT_THAT(page, testing::HasSubstr("<span>bound by</span><b>nvme</b>"));
  for (const char* lane : {"read", "write"}) {
    EXPECT_THAT(page, testing::ContainsRegex(std::string("<tr><th>") + lane + "</th>[^\n]{0,60}class=\"bound\""));
  }
  const std::string beside = report_of({{"read", 55}, {"write", 50}, {"drive", 62}, {"compute", 60}});
  EXPECT_THAT(beside,
              testing::HasSubstr("Most was asked of the NVMe drives, which reads and writes share: busy 62 % of"));
  EXPECT_THAT(both, testing::HasSubstr("a step could be 1.7 times as fast"));
  const std::string alone = report_of({{"drive", 99}, {"compute", 0.5}});
  EXPECT_THAT(alone, testing::HasSubstr("a step could be more than 10 times as fast"));
  // Copies have a link each way: these do not add up.
  const std::string copies = report_of({{"upload", 55}, {"download", 50}, {"compute", 95}});
  EXPECT_THAT(copies, testing::HasSubstr("bound by compute: busy 95 % of the step"));
  EXPECT_THAT(copies, testing::HasSubstr(
                          "Another drive, or memory for more of the state, would save 5.00 ms of a step at best"));
}

TEST_F(ReportTest, advises_rarer_commits_where_state_is_at_home_in_host_memory_and_written_in_every_step) {
  const auto advice_with = [&](const std::string& home) {
    EXPECT_EQ(train("run", {"--steps", "3", "--overwrite", "--set", "sluice.commit_interval=1", "--set",
                            "sluice.host_memory=16MiB", "--set", "sluice.placement.state=" + home})
                  .exit_code,
              0);
    return report_of({{"read", 55}, {"write", 50}, {"drive", 98}, {"compute", 60}});
  };
  EXPECT_THAT(advice_with("host"), testing::HasSubstr("A longer sluice.commit_interval"));
  EXPECT_THAT(advice_with("nvme"), testing::Not(testing::HasSubstr("commit_interval")));
}

TEST_F(ReportTest, does_not_say_that_nothing_helps_where_lanes_waited_for_each_other) {
  ASSERT_EQ(train("run", {"--steps", "3"}).exit_code, 0);
  fs::remove(file("run/would_help.json"));  // no prediction says what would help
  const std::string words = report_of({{"read", 30}, {"compute", 60}});
  EXPECT_THAT(words, testing::HasSubstr("Nothing was busy throughout"));
  EXPECT_THAT(words, testing::HasSubstr("Whether more memory would let them wait less"));
  for (const char* against : {"change nothing", "at best"}) {
    EXPECT_THAT(words, testing::Not(testing::HasSubstr(against)));
  }
  EXPECT_THAT(text_in("run/report.html"), testing::HasSubstr("<span>busiest</span><b>compute</b>"));
}

TEST_F(ReportTest, shows_what_the_planner_says_would_help) {
  std::ofstream(file("machine.json")) << kSlowMachine;
  const std::vector<std::string> on_it = {"--set", "sluice.placement.state=nvme"};
  std::vector<std::string> resumed = on_it;
  resumed.insert(resumed.end(), {"--steps", "8", "--resume"});
  const Ended trained = train("run", on_it);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json kept = json_in("run/would_help.json");
  EXPECT_THAT(trained.out, testing::HasSubstr(fmt::format("predicted    {:.1f} ms", kept["step_ms"].get<double>())));
  ASSERT_EQ(kept["would_help"].size(), 4u);
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
  const std::string page = text_in("run/report.html");
  for (const char* part : {kOffers, "one more drive", "+1.0 MiB host memory", "+2.0 MiB device memory", "2x tokens"}) {
    EXPECT_THAT(page, testing::HasSubstr(part));
  }
  for (const Json& offer : kept["would_help"]) {
    const double tokens_per_s = offer["tokens_per_s"];
    const bool helps = tokens_per_s >= kWorthOffering * kept["tokens_per_s"].get<double>();
    const std::string words = offer["words"], figure = "<td>" + std::to_string(std::llround(tokens_per_s)) + "</td>";
    EXPECT_EQ(page.find("<th>" + words + "</th>") != std::string::npos, helps) << offer;
    EXPECT_THAT(page, testing::HasSubstr(helps ? figure : "No help: "));
  }
  std::ofstream(file("run/would_help.json")) << "{}";
  const Ended without = sluice({"report", "@run"});
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_THAT(without.err, testing::HasSubstr("would_help.json"));
  EXPECT_THAT(text_in("run/report.html"), testing::Not(testing::HasSubstr(kOffers)));
  ASSERT_EQ(train("run", resumed).exit_code, 0);
  EXPECT_EQ(json_in("run/would_help.json")["would_help"].size(), 4u);
  fs::remove(file("run/would_help.json"));  // as runs from before it have none
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
  EXPECT_THAT(text_in("run/report.html"), testing::Not(testing::HasSubstr(kOffers)));
}

// Every step runs twice, its gradients being clipped, but none has the work that was predicted.
TEST_F(ReportTest, says_what_it_was_that_kept_steps_from_being_as_predicted) {
  std::ofstream(file("machine.json")) << kSlowMachine;
  const Ended trained = train("run", {"--set", "sluice.placement.state=nvme", "--set", "sluice.update=speculative",
                                      "--set", "gradient_clipping=0.0001"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const Json& line : metrics("run")) EXPECT_FALSE(line.contains("predicted_step_ms")) << line;
  const Ended ended = sluice({"report", "@run"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(
      text_in("run/report.html"),
      testing::AllOf(testing::HasSubstr("of steps that are not like it: "),
                     testing::ContainsRegex("([0-9]+) of ([0-9]+) ran updates in the backward that were undone")));
}

// The planner is asked about four things; what binds has general advice of its own.
TEST_F(ReportTest, advises_what_the_planner_predicts_to_help_and_else_nothing_that_it_was_asked_about) {
  ASSERT_EQ(train("run", {"--steps", "3"}).exit_code, 0);
  const auto with_drive_at = [&](double tokens_per_s) {
    const Json offers = Json::array({{{"words", "one more drive"}, {"step_ms", 50}, {"tokens_per_s", tokens_per_s}},
                                     {{"words", "+1.0 GiB host memory"}, {"step_ms", 100}, {"tokens_per_s", 1000}}});
    std::ofstream(file("run/would_help.json"))
        << Json{{"step_ms", 100}, {"tokens_per_s", 1000}, {"would_help", offers}};
    return report_of({{"read", 90}});
  };
  EXPECT_THAT(with_drive_at(2000), testing::HasSubstr("prediction: one more drive (+100 % tokens/s)"));
  const std::string none = with_drive_at(1001);
  EXPECT_THAT(none, testing::HasSubstr("none of these would help: one more drive, +1.0 GiB host memory."));
  EXPECT_THAT(none, testing::Not(testing::HasSubstr("takes a share of both")));
  const std::string cpu = report_of({{"update", 95}});
  EXPECT_THAT(cpu, testing::HasSubstr("none of these would help"));
  EXPECT_THAT(cpu, testing::AllOf(testing::HasSubstr("More cores"), testing::Not(testing::HasSubstr("ore tokens"))));
}

TEST_F(ReportTest, replaces_an_earlier_report_and_nothing_else) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"report", "@run", "--out", "@page.html"}).exit_code, 0);
  EXPECT_EQ(sluice({"report", "@run", "--out", "@page.html"}).exit_code, 0);
  fs::create_symlink(file("page.html"), file("link.html"));
  EXPECT_EQ(sluice({"report", "@run", "--out", "@link.html"}).exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(file("link.html")));
  for (const std::string there : {"run/metrics.jsonl", "run.json", "run/sluice-0.swap"}) {
    const std::string before = text_in(there);
    const Ended ended = sluice({"report", "@run", "--out", "@" + there});
    EXPECT_EQ(ended.exit_code, 2) << there;
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("is not a report, and is not replaced"));
    EXPECT_EQ(text_in(there), before);
  }
  EXPECT_EQ(sluice({"report", "@run", "--out", "/dev/null"}).exit_code, 2);
}

TEST_F(ReportTest, of_metrics_that_are_there_and_cannot_be_read_is_refused) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
  const std::string before = text_in("run/report.html");
  fs::remove(file("run/metrics.jsonl"));
  fs::create_directory(file("run/metrics.jsonl"));
  for (const auto& [ended, exit_code, why] :
       {std::tuple(sluice({"report", "@run"}), 1, "Is a directory"),
        std::tuple(train("run", {"--resume", "--steps", "2"}), 2, "is no file")}) {
    EXPECT_EQ(ended.exit_code, exit_code);
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("metrics.jsonl"));
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr(why));
  }
  EXPECT_EQ(text_in("run/report.html"), before);
  // Opens, and fails as it is read: what could not be read is no end of the file.
  fs::remove(file("run/metrics.jsonl"));
  fs::create_symlink("/proc/self/mem", file("run/metrics.jsonl"));
  for (const Ended& ended : {sluice({"report", "@run"}), train("run", {"--resume", "--steps", "2"})}) {
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("read of " + file("run/metrics.jsonl") + " failed"));
  }
  EXPECT_TRUE(fs::is_symlink(file("run/metrics.jsonl")));
  EXPECT_EQ(text_in("run/report.html"), before);
}

TEST_F(ReportTest, of_a_folder_without_a_run_is_refused) {
  const Ended ended = sluice({"report", "@nothing"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("no run is there"));
}

TEST_F(ReportTest, a_trace_asked_for_on_the_command_line_holds_every_lane) {
  ASSERT_EQ(train("run", {"--trace", "@hops.json", "--steps", "2"}).exit_code, 0);
  const Json trace = json_in("hops.json");
  std::map<int, std::string> names;
  std::set<std::string> lanes;  // "read", "read 2": as many threads as it has hops at once
  for (const Json& event : trace["traceEvents"]) {
    const int thread = event["tid"].get<int>();
    if (event["ph"] == "M") names[thread] = event["args"]["name"];
    if (event["ph"] == "X") lanes.insert(names.at(thread).substr(0, names.at(thread).find(' ')));
  }
  EXPECT_EQ(lanes, (std::set<std::string>{"compute", "download", "read", "update", "upload", "write"}));
}

TEST_F(ReportTest, the_log_names_the_resource_that_was_busy_longest_reads_and_writes_as_one) {
  const Ended ended =
      train("run", {"--set", kFixedHomes, "--set", "sluice.commit_interval=1", "--set", "steps_per_print=1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto said = matches_of(
      "step (\\d+)/6 .* (\\d+) ms, (bound by|busiest:) (\\w+) ([0-9.]+)( of [0-9.]+)? ms(; lanes wait for each "
      "other)?; (.*)",
      ended.err);
  const std::vector<Json> lines = metrics("run");
  for (const auto& match : said) {
    const Json& line = lines[std::stoul(match[1]) - 1];
    const auto ms = [&](const char* lane) { return line["lanes"][lane]["ms"].get<double>(); };
    const double ms_of_step = line["step_ms"].get<double>();
    const std::map<std::string, double> busy_ms = {{"nvme", line["drive_ms"].get<double>()},
                                                   {"cpu", ms("update")},
                                                   {"copies", std::max(ms("upload"), ms("download"))},
                                                   {"compute", ms("compute")}};
    EXPECT_GE(busy_ms.at("nvme"), std::max(ms("read"), ms("write")));
    EXPECT_LE(busy_ms.at("nvme"), std::min(ms("read") + ms("write"), ms_of_step));
    double most = 0;
    for (const auto& [resource, busy] : busy_ms) most = std::max(most, busy);
    ASSERT_TRUE(busy_ms.contains(match[4])) << match[0];
    EXPECT_EQ(busy_ms.at(match[4]), most) << match[0];
    EXPECT_NEAR(std::stod(match[5]), most, 0.5) << match[0];
    const bool binds = most >= 0.8 * ms_of_step;
    EXPECT_EQ(match[3] == "bound by", binds) << match[0];
    EXPECT_EQ(match[7].empty(), binds) << match[0];
    for (const char* lane : {"read", "write"}) {
      EXPECT_THAT(match[8], testing::HasSubstr(fmt::format("{} {:.0f} %", lane, 100 * ms(lane) / ms_of_step)));
    }
  }
  EXPECT_EQ(said.size(), lines.size() - 1);  // the last line has the digests
}

TEST_F(ReportTest, the_log_says_which_lane_bound_the_step_and_how_far_the_others_were) {
  const Ended ended = train("run", {"--steps", "2"});
  // Six lanes; five where the resource has one alone, which is named already.
  EXPECT_THAT(ended.err, testing::ContainsRegex("(bound by|busiest:) [a-z]+ [^;]+;[a-z ]*;? [a-z]+ [0-9]+ %"
                                                "(, [a-z]+ [0-9]+ %){4,5} of the step"));
}

}  // namespace
}  // namespace sluice
