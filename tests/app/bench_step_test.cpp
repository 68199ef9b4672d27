// `sluice bench step`: what it prints and what it leaves behind.
#include <csignal>
#include <fstream>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class BenchStepTest : public CommandTest {
 protected:
  Ended bench(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"bench",
                                          "step",
                                          "@run.json",
                                          "--set",
                                          "sluice.nvme=[\"" + file("drive") + "\"]",
                                          "--set",
                                          "sluice.placement.state=nvme"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return sluice(arguments);
  }
};

TEST_F(BenchStepTest, measures_ten_steps_with_a_commit_where_commits_are_rarer) {
  fs::create_directory(file("drive"));
  const Ended ended =
      bench({"--compute-ms-per-visit", "2", "--rounds", "1", "--steps", "2", "--set", "sluice.placement.state=host",
             "--set", "sluice.host_memory=8MiB", "--set", "sluice.commit_interval=200"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              testing::HasSubstr("means over 10 steps, one of which commits, counted as one of 200 (replays"));
}

TEST_F(BenchStepTest, json_has_its_keys_and_they_agree) {
  fs::create_directory(file("drive"));
  const Ended ended = bench({"--json", "--compute-ms-per-visit", "2", "--rounds", "1", "--steps", "2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = ordered_json_of(ended.out);
  EXPECT_EQ(keys_of(json),
            (std::vector<std::string>{"step_ms", "replay_ms", "replay_percent_of_ceiling", "overlap_efficiency",
                                      "binding_lane", "predicted_step_ms", "tokens_per_s", "tflop_per_s", "exposed_ms",
                                      "measured_steps", "clipped_steps", "skipped_steps"}));
  double longest = 0;
  for (const auto& [resource, ms] : json["replay_ms"].items()) longest = std::max(longest, ms.get<double>());
  EXPECT_EQ(json["replay_ms"].size(), 4u);
  EXPECT_EQ(json["replay_ms"][json["binding_lane"].get<std::string>()], longest);
  EXPECT_NEAR(json["overlap_efficiency"], longest / json["step_ms"].get<double>(), 1e-9);
  EXPECT_NEAR(json["tokens_per_s"], 6 * 33 / json["step_ms"].get<double>() * 1e3, 1e-6);
  EXPECT_GT(json["tflop_per_s"], 0);
  EXPECT_EQ(json["exposed_ms"].size(), 5u);
  for (const auto& [lane, ms] : json["exposed_ms"].items()) EXPECT_LE(ms, json["step_ms"]) << lane;
  // What was waited for is known to the prediction.
  EXPECT_GE(json["predicted_step_ms"], 2.0 * 2 * (3 * (1 + 3) + 4));
  // 4 visits and 2 micro-batches: 3 x (1 + 3) + 4 waits of 2 ms each.
  EXPECT_GE(json["replay_ms"]["compute"], 2.0 * 2 * (3 * (1 + 3) + 4));
  EXPECT_GE(json["step_ms"], 2.0 * 2 * (3 * (1 + 3) + 4));
  EXPECT_TRUE(fs::is_empty(file("drive")));
}

// Without gradients kept, a step whose clip engages runs twice: so do its replays and what is predicted.
TEST_F(BenchStepTest, of_steps_that_run_twice_counts_everything_twice) {
  leave_homes_to_the_planner();
  const std::vector<std::string> options = {
      "--json", "--compute-ms-per-visit", "2", "--rounds", "1", "--steps", "2", "--set", "sluice.update=replay",
      "--set",  "gradient_clipping=0.01"};
  const Ended ended = bench(options);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json json = json_of(ended.out);
  constexpr double kOnce = 2.0 * 2 * (3 * (1 + 3) + 4);  // as above
  for (const auto& ms : {json["step_ms"], json["predicted_step_ms"], json["replay_ms"]["compute"]}) {
    EXPECT_GE(ms.get<double>(), 2 * kOnce);
  }
}

// Its own store lies beside the one that is there; beside both, half of the room that is left serves the ceilings.
TEST_F(BenchStepTest, takes_the_room_that_a_drive_has_beside_the_store_that_is_there) {
  const Ended planned = sluice({"plan", "@run.json", "--json", "--set", "sluice.placement.state=nvme"});
  const int64_t needed = json_of(planned.out)["disk_bytes"];
  const MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"), round_up(needed, 4096) + 16 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::vector<std::string> short_run = {"--rounds", "1", "--steps", "1", "--compute-ms-per-visit", "1"};
  EXPECT_EQ(bench(short_run).exit_code, 0);
  std::ofstream(file("drive/sluice-0.swap")) << std::string(static_cast<size_t>(16 * kMiB + needed / 2), 'x');
  const Ended refused = bench(short_run);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.last_error_line(), testing::HasSubstr("the drive is too small: the store needs"));
  EXPECT_EQ(std::distance(fs::directory_iterator(file("drive")), {}), 1);
}

TEST_F(BenchStepTest, runs_the_real_compute_and_removes_the_folder_it_made) {
  const Ended ended = bench({"--rounds", "1", "--steps", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* words : {"step ", "nvme", "cpu", "copies", "compute", "overlap efficiency", "gradient norm"}) {
    EXPECT_THAT(ended.out, testing::HasSubstr(words));
  }
  EXPECT_FALSE(fs::exists(file("drive")));
}

TEST_F(BenchStepTest, ends_by_a_signal_with_its_number_and_leaves_nothing_behind) {
  const Ended ended =
      sluice_signalled("INT", {"bench", "step", "@run.json", "--set", "sluice.nvme=[\"" + file("drive") + "\"]",
                               "--machine", "@machine.json", "--rounds", "1000", "--compute-ms-per-visit", "10"});
  EXPECT_EQ(ended.exit_code, 128 + SIGINT) << ended.err;
  EXPECT_FALSE(fs::exists(file("drive")));
}

TEST_F(BenchStepTest, a_store_that_lies_there_is_not_touched) {
  ASSERT_EQ(train("run", {"--set", "sluice.nvme=[\"" + file("drive") + "\"]"}).exit_code, 0);
  const auto before = fs::last_write_time(file("drive/sluice-0.swap"));
  ASSERT_EQ(bench({"--rounds", "1", "--steps", "1", "--compute-ms-per-visit", "0"}).exit_code, 0);
  EXPECT_EQ(fs::last_write_time(file("drive/sluice-0.swap")), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(file("drive")), fs::directory_iterator()), 1);
}

TEST_F(BenchStepTest, the_trace_of_a_training_run_is_not_touched) {
  Json config = json_in("run.json");
  config["sluice"]["trace"] = file("hops.json");
  std::ofstream(file("run.json")) << config;
  std::ofstream(file("hops.json")) << "of a run";
  const std::vector<std::string> quick = {"--rounds", "1", "--steps", "1", "--compute-ms-per-visit", "0"};
  ASSERT_EQ(bench(quick).exit_code, 0);
  EXPECT_EQ(fs::file_size(file("hops.json")), std::string("of a run").size());
  std::vector<std::string> asked = quick;
  asked.insert(asked.end(), {"--set", "sluice.trace=" + file("asked.json")});
  ASSERT_EQ(bench(asked).exit_code, 0);
  EXPECT_GT(fs::file_size(file("asked.json")), 1000u);
}

TEST_F(BenchStepTest, the_clip_engages_where_the_waits_gradient_is_above_it) {
  const auto clipped = [&](const std::string& most) {
    return bench({"--rounds", "1", "--steps", "2", "--compute-ms-per-visit", "0", "--set", "gradient_clipping=" + most})
        .out;
  };
  EXPECT_THAT(clipped("1.0"), testing::ContainsRegex("gradient norm 0\\.[0-9]+, clipped in 0"));
  EXPECT_THAT(clipped("0.01"), testing::ContainsRegex("gradient norm 0\\.[0-9]+, clipped in 2"));
}

TEST_F(BenchStepTest, the_clip_engages_in_fp16_whatever_the_loss_scale) {
  const Ended ended = bench({"--rounds", "1", "--steps", "2", "--compute-ms-per-visit", "0", "--set",
                             "gradient_clipping=0.01", "--set", "bf16.enabled=false", "--set", "fp16.enabled=true"});
  EXPECT_THAT(ended.out, testing::ContainsRegex("gradient norm 0\\.[0-9]+, clipped in 2")) << ended.err;
}

TEST_F(BenchStepTest, of_skipped_steps_says_so_and_does_not_count_them_as_clipped) {
  const std::vector<std::string> overflowing = {"--rounds", "1",
                                                "--steps",  "2",
                                                "--set",    "bf16.enabled=false",
                                                "--set",    "fp16.enabled=true",
                                                "--set",    "fp16.initial_scale_power=30",
                                                "--set",    "fp16.hysteresis=1",
                                                "--set",    "sluice.update=deferred"};
  EXPECT_THAT(bench(overflowing).out,
              testing::HasSubstr("clipped in 0, skipped (a gradient was not finite, nothing was "
                                 "updated) in 2 of 2"));
  std::vector<std::string> as_json = overflowing;
  as_json.push_back("--json");
  const Json json = json_of(bench(as_json).out);
  EXPECT_EQ(json["measured_steps"], 2);
  EXPECT_EQ(json["skipped_steps"], 2);
  EXPECT_EQ(json["clipped_steps"], 0);
}

TEST_F(BenchStepTest, of_early_updates_that_are_undone_predicts_nothing_and_says_so) {
  std::vector<std::string> options = {"--rounds",
                                      "1",
                                      "--steps",
                                      "2",
                                      "--compute-ms-per-visit",
                                      "0",
                                      "--set",
                                      "sluice.update=speculative",
                                      "--set",
                                      "gradient_clipping=0.01"};
  EXPECT_THAT(bench(options).out, testing::HasSubstr("undone and done again"));
  options.push_back("--json");
  EXPECT_TRUE(json_of(bench(options).out)["predicted_step_ms"].is_null());
  options[9] = "gradient_clipping=100";
  EXPECT_TRUE(json_of(bench(options).out)["predicted_step_ms"].is_number());
}

TEST_F(BenchStepTest, on_two_drives_in_a_folder_that_was_not_there_leaves_none) {
  const Ended ended = bench({"--rounds", "1", "--steps", "1", "--compute-ms-per-visit", "0", "--json", "--set",
                             "sluice.nvme=[\"" + file("new/a") + "\", \"" + file("new/b") + "\"]", "--set",
                             "sluice.io_block=4KiB", "--set", "sluice.io_depth=4096",  // for both: half each
                             "--set", "sluice.host_memory=8MiB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(fs::exists(file("new")));
  // What both drives reach together is known.
  EXPECT_TRUE(json_of(ended.out)["replay_percent_of_ceiling"]["nvme"].is_number()) << ended.out;
}

TEST_F(BenchStepTest, a_wait_that_is_none_is_refused) {
  const Ended ended = bench({"--compute-ms-per-visit", "-1"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("milliseconds"));
}

}  // namespace
}  // namespace sluice
