// `sluice tune`: what it writes, what it says, what it leaves behind.
#include <sstream>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class TuneTest : public CommandTest {
 protected:
  TuneTest() { fs::create_directory(file("drive")); }

  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> list = {
        "tune", file("run.json"), "--set", "sluice.nvme=[\"" + file("drive") + "\"]", "--steps", "1"};
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }
  // Steps of two samples, one or both at once, and homes that are named: a search that is soon over.
  std::vector<std::string> small_steps(std::vector<std::string> more) const {
    more.insert(more.end(), {"--set", "train_micro_batch_size_per_gpu=1", "--set", "gradient_accumulation_steps=2"});
    return arguments(more);
  }
  Ended tune(const std::vector<std::string>& more = {}) const { return sluice(arguments(more)); }
  OrderedJson read(const std::string& name) const { return ordered_json_of(text_in(name)); }
};

TEST_F(TuneTest, writes_a_configuration_that_trains) {
  if (!SLUICE_IS_SANITIZED) leave_homes_to_the_planner();  // a sanitizer would take minutes
  const OrderedJson before = read("run.json");
  const Ended ended = tune({"--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read("run.json").dump(), before.dump());
  EXPECT_TRUE(fs::is_empty(file("drive")));
  const OrderedJson tuned = read("run.tuned.json");
  // The file's own keys in their order; nothing but what was chosen differs.
  EXPECT_EQ(keys_of(tuned), keys_of(before));
  for (const auto& [key, value] : before.items()) {
    const bool chosen = key == "train_micro_batch_size_per_gpu" || key == "gradient_accumulation_steps";
    if (!chosen && key != "sluice") {
      EXPECT_EQ(tuned[key], value);
    }
  }
  EXPECT_EQ(tuned["train_micro_batch_size_per_gpu"].get<int>() * tuned["gradient_accumulation_steps"].get<int>(), 6);
  EXPECT_EQ(sluice({"train", "@run.tuned.json", "--data", "@text.txt", "--out", "@run", "--steps", "2"}).exit_code, 0);

  const Json report = json_of(ended.out);
  EXPECT_EQ(report["file"], file("run.tuned.json"));
  int chosen = 0, given = 0;
  for (const Json& each : report["candidates"]) {
    EXPECT_GT(each["predicted_ms"], 0);
    EXPECT_GT(each["measured_ms"], 0);
    EXPECT_EQ(each["device_memory"].get<int64_t>() + each["host_memory"].get<int64_t>(), 3 << 20);
    EXPECT_EQ(each["train_micro_batch_size_per_gpu"].get<int>() * each["gradient_accumulation_steps"].get<int>(), 6);
    EXPECT_EQ(each["same_bits"], each["train_micro_batch_size_per_gpu"] == 3);
    chosen += each["chosen"].get<bool>();
    given += each["as_given"].get<bool>();
    if (each["chosen"]) {
      EXPECT_EQ(each["train_micro_batch_size_per_gpu"], tuned["train_micro_batch_size_per_gpu"]);
    }
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(given, 1);
  EXPECT_LE(report["candidates"].size(), 3u);
}

TEST_F(TuneTest, replaces_no_file_that_is_not_a_configuration) {
  const Ended ended = sluice({"tune", "@run.json", "--out", "@text.txt"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("is not a configuration, and is not replaced"));
  EXPECT_GT(fs::file_size(file("text.txt")), 1000u);
  const std::string before = text_in("run.json");
  const Ended itself = sluice({"tune", "@run.json", "--out", "@./run.json"});
  EXPECT_EQ(itself.exit_code, 2);
  EXPECT_THAT(itself.last_error_line(), testing::HasSubstr("that is the configuration to tune"));
  EXPECT_EQ(text_in("run.json"), before);
}

TEST_F(TuneTest, a_table_says_what_changes_bits_and_the_file_has_the_name_that_out_gives) {
  const Ended ended = sluice(small_steps({"--out", file("mine.json"), "--data", file("text.txt"), "--trials", "9"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* words : {"predicted", "measured", "tokens/s", "as given", "chosen", "mine.json"}) {
    EXPECT_THAT(ended.out, testing::HasSubstr(words));
  }
  // Which settings are among the best, and how many of them a trial could tell apart, depends on how long visits took.
  std::istringstream lines(ended.out);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("2 x 1 ") && !line.starts_with("1 x 2 ")) continue;
    ++rows;
    EXPECT_EQ(line.find("other bits (*)") != std::string::npos, line.starts_with("1 x 2 ")) << line;
  }
  EXPECT_GE(rows, 2);  // as given, and another
  EXPECT_LE(rows, 9);
  EXPECT_TRUE(fs::exists(file("mine.json")));
  EXPECT_FALSE(fs::exists(file("run.tuned.json")));
  EXPECT_TRUE(fs::is_empty(file("drive")));
}

TEST_F(TuneTest, a_text_that_is_named_by_its_key_is_looked_for) {
  const Ended ended = tune({"--set", "data.path=" + file("nowhere.txt")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr(file("nowhere.txt")));
}

TEST_F(TuneTest, a_configuration_that_does_not_fit_is_given_a_split_that_does) {
  const Ended ended =
      sluice(small_steps({"--json", "--set", "sluice.device_memory=64KiB", "--set", "sluice.host_memory=3MiB"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json report = json_of(ended.out), candidates = report["candidates"];
  EXPECT_FALSE(candidates.empty());
  for (const Json& each : candidates) {
    EXPECT_FALSE(each["as_given"]);
    EXPECT_NEAR(each["tokens_per_s"].get<double>() * each["measured_ms"].get<double>(), 2 * 33 * 1e3, 1e-6);
  }
  EXPECT_GT(report["unfit"], 0);
  const OrderedJson tuned = read("run.tuned.json");
  EXPECT_NE(tuned["sluice"]["device_memory"], "64KiB");
  EXPECT_EQ(sluice({"plan", "@run.tuned.json"}).exit_code, 0);
}

TEST_F(TuneTest, what_fits_nowhere_is_refused_as_by_plan) {
  const std::vector<std::string> tiny = {"--set", "sluice.device_memory=64KiB", "--set", "sluice.host_memory=64KiB"};
  const Ended ended = tune(tiny);
  EXPECT_EQ(ended.exit_code, 2);
  std::vector<std::string> plan = {"plan", "@run.json"};
  plan.insert(plan.end(), tiny.begin(), tiny.end());
  EXPECT_EQ(ended.last_error_line(), sluice(plan).last_error_line());
  EXPECT_FALSE(fs::exists(file("run.tuned.json")));
}

TEST_F(TuneTest, a_file_that_is_there_stays_unless_out_names_it) {
  std::ofstream(file("run.tuned.json")) << "{}";
  const Ended ended = tune();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("is there already"));
  EXPECT_EQ(read("run.tuned.json").dump(), "{}");
  EXPECT_THAT(tune({"--out", file("nowhere/mine.json")}).last_error_line(),
              testing::HasSubstr("cannot be written: " + file("nowhere") + ": No such file or directory"));
  EXPECT_THAT(tune({"--out", file("")}).last_error_line(), testing::HasSubstr("it is a folder"));
}

TEST_F(TuneTest, a_dash_is_refused_as_a_file_before_anything_is_timed) {
  const fs::path dash = fs::current_path() / "-";
  ASSERT_FALSE(fs::exists(dash));
  const Ended ended = tune({"--out", "-"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(),
              testing::AllOf(testing::HasSubstr("--out is -"), testing::HasSubstr("./- for a file of that name")));
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("timing")));
  EXPECT_FALSE(fs::exists(dash));
}

TEST_F(TuneTest, a_drive_without_room_for_a_trial_is_refused_before_the_first) {
  const MountedDrive small(MountedDrive::Kind::kMemory, file("small"), 256 * kKiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const Ended ended = sluice(small_steps({"--set", "sluice.nvme=[\"" + file("small") + "\"]"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(),
              testing::AllOf(testing::HasSubstr(file("small") + ": the drive is too small: the store needs"),
                             testing::HasSubstr("256.0 KiB (262144 bytes) are free")));
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("trying")));
  EXPECT_TRUE(fs::is_empty(file("small")));
  EXPECT_FALSE(fs::exists(file("run.tuned.json")));
}

TEST_F(TuneTest, an_interrupt_leaves_no_files) {
  for (const auto& [fault, signal] : {std::pair("interrupt-after-bytes", 2), std::pair("terminate-after-bytes", 15)}) {
    const Ended ended = sluice_with({fault, 200000}, small_steps({}));
    EXPECT_EQ(ended.exit_code, 128 + signal) << ended.err;
    EXPECT_TRUE(fs::is_empty(file("drive")));
    EXPECT_FALSE(fs::exists(file("run.tuned.json")));
  }
}

TEST_F(TuneTest, tune_leaves_the_trace_of_a_training_run_alone) {
  fs::create_directory(file("drive"));
  std::ofstream(file("hops.json")) << "of a run";
  Json config = json_in("run.json");
  config["sluice"]["trace"] = file("hops.json");
  std::ofstream(file("run.json")) << config;
  const Ended ended = sluice({"tune", "@run.json", "--set", "sluice.nvme=[\"" + file("drive") + "\"]", "--steps", "2",
                              "--trials", "1", "--set", "train_micro_batch_size_per_gpu=1", "--set",
                              "gradient_accumulation_steps=1", "--set", "sluice.commit_interval=1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("trying 1 of them, 3 rounds of 4 steps")) << "as many as were asked for";
  EXPECT_EQ(fs::file_size(file("hops.json")), std::string("of a run").size());
}

}  // namespace
}  // namespace sluice
