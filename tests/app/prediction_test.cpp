// What a step is predicted to take, as plan, train and bench say it.
#include <sys/syscall.h>

#include <cerrno>
#include <thread>

#include "app/what_if.h"
#include "core/bytes.h"
#include "core/topology.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/set_variable.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A machine in which the drive takes longest by far.
constexpr const char* kSlowDrive = R"({
  "read_gb_per_s": 0.001, "write_gb_per_s": 0.001, "mixed_gb_per_s": 0.001, "upload_gb_per_s": 10,
  "download_gb_per_s": 10, "update_ns_per_element": 0.5, "checksum_gb_per_s": 20, "close_gb_per_s": 5,
  "compute_tflop_per_s": 1, "update_threads": 1, "cores": 2})";

class PredictionTest : public CommandTest {
 protected:
  PredictionTest() {
    leave_homes_to_the_planner();
    std::ofstream(file("machine.json")) << kSlowDrive;
  }

  // No file can be made on it to measure its speeds with.
  Ended plan_on_a_full_drive() const {
    Ended ended;
    std::thread([&] {
      forbid({.number = SYS_fallocate, .error_number = ENOSPC});
      ended = sluice_program({"plan", "@run.json"});
    }).join();
    return ended;
  }

  SetVariable cache_{"XDG_CACHE_HOME", file("cache")};
};

TEST_F(PredictionTest, of_a_named_machine_follows_from_its_speeds_alone) {
  const std::vector<std::string> arguments = {
      "plan", "@run.json", "--json", "--set", "sluice.placement.state=nvme", "--machine", "@machine.json"};
  const Ended ended = sluice(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out), prediction = plan["prediction"];
  double nvme_bytes = 0;
  for (const Json& row : plan["moves_per_step"]) {
    if (row["link"].get<std::string>().starts_with("nvme")) nvme_bytes += row["bytes"].get<double>();
  }
  EXPECT_NEAR(prediction["alone_ms"]["nvme"], nvme_bytes / 1e3, nvme_bytes / 1e8);  // 1 MB/s: 1000 bytes a ms
  EXPECT_EQ(prediction["binding"], "nvme");
  constexpr double kRounding = 1e-12;  // the two are sums in another order
  EXPECT_GE(prediction["step_ms"], prediction["alone_ms"]["nvme"].get<double>() * (1 - kRounding));
  EXPECT_GT(prediction["critical_tokens"], 3 * 33 * 2);
  EXPECT_EQ(json_of(sluice(arguments).out)["prediction"], prediction);
  EXPECT_FALSE(fs::exists(file("cache")));  // nothing was measured
}

// 1411 chunks, whose plan is chosen among fewer: what is best there may not be best here.
TEST_F(PredictionTest, of_many_small_chunks_is_never_longer_for_more_memory) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; of_a_named_machine_follows_from_its_speeds_alone runs the same code";
  std::ofstream(file("machine.json")) << R"({
    "drives": 4, "read_gb_per_s": 26, "write_gb_per_s": 14, "mixed_gb_per_s": 18.2, "upload_gb_per_s": 126,
    "download_gb_per_s": 126, "update_ns_per_element": 0.159, "checksum_gb_per_s": 55, "close_gb_per_s": 5437,
    "device_update_gb_per_s": 6525, "compute_tflop_per_s": 624, "update_threads": 5, "cores": 64})";
  const auto step_ms = [this](const std::string& host_memory) {
    std::vector<std::string> arguments = {"plan", "@run.json", "--json", "--machine", "@machine.json"};
    for (const std::string& key :
         {std::string(R"(model={"type": "gpt2", "vocab_size": 2048, "n_positions": 128, "n_embd": 192, "n_layer": 12,
                               "n_head": 6})"),
          std::string("data.sequence_length=128"), std::string("train_batch_size=8"),
          std::string("train_micro_batch_size_per_gpu=4"), std::string("gradient_accumulation_steps=2"),
          std::string("sluice.chunk_elements=4096"), std::string("sluice.commit_interval=10"),
          std::string("sluice.device_memory=12MiB"), "sluice.host_memory=" + host_memory}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    const Ended ended = sluice(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.exit_code == 0 ? json_of(ended.out)["prediction"]["step_ms"].get<double>() : 0;
  };
  double before = step_ms("8MiB");
  for (const char* host_memory : {"10MiB", "11MiB", "12MiB", "14MiB"}) {
    const double now = step_ms(host_memory);
    EXPECT_LE(now, before * 1.01) << host_memory;
    before = now;
  }
}

TEST_F(PredictionTest, of_a_named_machine_has_as_many_drives_as_its_file_says_or_the_configuration_names) {
  Json machine = json_of(kSlowDrive);
  machine["drives"] = 4;
  std::ofstream(file("machine.json")) << machine;
  const auto nvme_ms = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan",      "@run.json",    "--json", "--set", "sluice.placement.state=nvme",
                                          "--machine", "@machine.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = sluice(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const Json plan = json_of(ended.out);
    return (plan.contains("what_if") ? plan["what_if"] : plan)["prediction"]["alone_ms"]["nvme"].get<double>();
  };
  const double of_four_ms = nvme_ms({});
  const auto near = [&](double ms) { return testing::DoubleNear(ms, ms * 1e-9); };
  EXPECT_THAT(nvme_ms({"--set", "sluice.nvme=[\"a\",\"b\",\"c\",\"d\"]"}), near(of_four_ms));
  EXPECT_THAT(nvme_ms({"--set", "sluice.nvme=[\"a\"]"}), near(4 * of_four_ms));
  EXPECT_THAT(nvme_ms({"--what-if", "drives=2"}), near(2 * of_four_ms));
  EXPECT_THAT(nvme_ms({"--what-if", "drives=+4"}), near(of_four_ms / 2));
}

TEST_F(PredictionTest, says_how_many_days_a_drive_lasts_and_warns_where_that_is_too_short) {
  Json config = json_in("run.json");
  const auto plan_for = [&](double days) {
    config["endurance"] = {{"terabytes_written", 1e6}, {"days", days}};
    std::ofstream(file("run.json")) << config;
    return sluice(
        {"plan", "@run.json", "--json", "--set", "sluice.placement.state=nvme", "--machine", "@machine.json"});
  };
  const Ended short_lived = plan_for(1e9), long_lived = plan_for(1);
  ASSERT_EQ(short_lived.exit_code, 0) << short_lived.err;
  const Json plan = json_of(short_lived.out), endurance = plan["endurance"];
  const double days = endurance["lasts_steps"].get<double>() * plan["prediction"]["step_ms"].get<double>() / 86400e3;
  EXPECT_NEAR(endurance["lasts_days"], days, days * 1e-9);
  EXPECT_GT(endurance["bytes_per_day"], 0);
  EXPECT_EQ(endurance["too_short"], true);
  EXPECT_THAT(short_lived.err, testing::HasSubstr("endurance.days"));
  EXPECT_EQ(json_of(long_lived.out)["endurance"]["too_short"], false);
  EXPECT_EQ(long_lived.err.find("endurance.days"), std::string::npos);
  EXPECT_THAT(sluice({"plan", "@run.json", "--machine", "@machine.json"}).out, testing::HasSubstr("at this rate"));
}

TEST_F(PredictionTest, is_printed_before_the_first_step_and_stands_beside_what_every_step_took) {
  const Ended ended = train("run");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("nvme binds"));
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("a plan is made anew"))) << "the engine takes the one at hand";
  const std::vector<Json> lines = metrics("run");
  Json before = lines.front();
  for (const Json& line : lines) {
    if (!line.contains("step")) continue;
    const bool alike = line["speculated"] == before["speculated"] && line["speculated"] != "wrong";
    EXPECT_EQ(line.contains("predicted_step_ms"), alike) << line;
    if (alike) {
      EXPECT_GT(line["predicted_step_ms"], 0);
      EXPECT_GT(line["lanes"]["write"]["predicted_ms"], 0);
    }
    before = line;
  }
  EXPECT_TRUE(before.contains("predicted_step_ms"));
  ASSERT_EQ(sluice({"report", "@run"}).exit_code, 0);
}

TEST_F(PredictionTest, of_a_step_that_is_clipped_under_replay_is_that_of_two) {
  const auto predicted_ms = [&](const std::string& out, const std::string& clipping) {
    const Ended ended =
        train(out, {"--set", "sluice.update=replay", "--set", "gradient_clipping=" + clipping, "--steps", "2"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return metrics(out)[1]["predicted_step_ms"].get<double>();
  };
  const double once_ms = predicted_ms("free", "1e9");
  EXPECT_NEAR(predicted_ms("clipped", "1e-6"), 2 * once_ms, once_ms * 1e-9);
}

TEST_F(PredictionTest, is_also_of_steps_in_which_the_clip_engages_where_that_makes_updates_wait) {
  Json machine = json_of(kSlowDrive);
  machine["compute_tflop_per_s"] = 5e-5;  // about as long as the drive takes, and early updates hide it
  std::ofstream(file("machine.json")) << machine;
  std::vector<std::string> arguments = {"plan",      "@run.json",     "--set", "sluice.placement.state=nvme",
                                        "--machine", "@machine.json", "--set", "gradient_clipping=1"};
  const auto clipped_of = [&](const std::string& key) {
    std::vector<std::string> as_json = arguments;
    as_json.insert(as_json.end(), {"--set", key, "--json"});
    const Ended ended = sluice(as_json);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return json_of(ended.out)["prediction"];
  };
  const Json either = clipped_of("sluice.update=auto");
  EXPECT_GT(either["clipped_step_ms"], 1.05 * either["step_ms"].get<double>());
  EXPECT_THAT(sluice(arguments).out, testing::ContainsRegex("predicted .*\n +[0-9.]+ ms where the clip engages\n"));
  for (const char* key : {"gradient_clipping=0", "sluice.update=deferred", "sluice.update=speculative"}) {
    EXPECT_TRUE(clipped_of(key)["clipped_step_ms"].is_null()) << key;
  }
  const Json again = clipped_of("sluice.update=replay");
  EXPECT_NEAR(again["clipped_step_ms"], 2 * again["step_ms"].get<double>(), 1e-6 * again["step_ms"].get<double>());
  arguments.back() = "gradient_clipping=0";
  EXPECT_THAT(sluice(arguments).out, testing::Not(testing::HasSubstr("where the clip engages")));
}

TEST_F(PredictionTest, says_that_lanes_wait_for_each_other_where_nothing_takes_most_of_the_step) {
  Json machine = json_of(kSlowDrive);
  for (const char* speed : {"read_gb_per_s", "write_gb_per_s", "mixed_gb_per_s", "upload_gb_per_s"}) machine[speed] = 1;
  machine["hop_us"] = 1e5;  // what no resource is busy with
  std::ofstream(file("machine.json")) << machine;
  const Ended ended = sluice({"plan", "@run.json", "--machine", "@machine.json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("homes: [a-z ,]+; busiest: [a-z]+ [0-9]+ of [0-9]+ ms; lanes wait"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("predicted .* ms; busiest: [a-z]+ [0-9]+ of [0-9]+ ms; lanes wait"));
  // But for the line that says from how many tokens on compute would, or that it would with none.
  const auto critical = matches_of("compute binds wh|compute binds with no", ended.out);
  EXPECT_EQ(matches_of("binds", ended.out).size(), critical.size());
}

TEST_F(PredictionTest, of_another_machine_says_that_its_workspace_is_not_measured_and_what_long_steps_take) {
  Json machine = json_of(kSlowDrive);
  for (const char* speed : {"read_gb_per_s", "write_gb_per_s", "mixed_gb_per_s"}) machine[speed] = 1e-7;
  std::ofstream(file("machine.json")) << machine;
  const std::vector<std::string> arguments = {"plan",      "@run.json",    "--set", "sluice.placement.state=nvme",
                                              "--machine", "@machine.json"};
  const Ended ended = sluice(arguments);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("(by the closed form: another machine's compute is not tried"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("predicted +[0-9.]+ ms \\([0-9:]+ h\\) a step"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("a day at [0-9.e+]+ s \\([0-9:]+ h\\) a step"));
}

TEST_F(PredictionTest, of_another_machine_says_of_budgets_that_are_too_small_that_its_workspace_is_not_measured) {
  const std::vector<std::string> too_small = {"plan", "@run.json", "--set", "sluice.device_memory=64KiB"};
  std::vector<std::string> elsewhere = too_small;
  elsewhere.insert(elsewhere.end(), {"--machine", "@machine.json"});
  const Ended here = sluice(too_small), there = sluice(elsewhere);
  for (const Ended& ended : {here, there}) {
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.err, testing::HasSubstr("smallest device_memory that would do"));
  }
  EXPECT_THAT(there.err, testing::HasSubstr("workspace by the closed form"));
  const Json fits = json_of(sluice({"plan", "@run.json", "--json", "--machine", "@machine.json"}).out);
  const int64_t workspace = fits["workspace"]["bytes"];
  EXPECT_THAT(there.err,
              testing::HasSubstr("leave it room (" + format_bytes(workspace * 3 / 10) + ") in device_memory"));
  EXPECT_THAT(here.err, testing::Not(testing::HasSubstr("closed form")));
}

TEST_F(PredictionTest, of_a_micro_batch_that_is_too_large_to_be_tried_is_none_and_its_workspace_has_room_for_an_error) {
  const std::vector<std::string> large = {"plan",  "@run.json",
                                          "--set", "train_micro_batch_size_per_gpu=1000000",
                                          "--set", "model.n_embd=7200",
                                          "--set", "sluice.device_memory=100TiB",
                                          "--set", "sluice.host_memory=1TiB",
                                          "--json"};
  const Ended here = sluice(large);
  ASSERT_EQ(here.exit_code, 0) << here.err;
  EXPECT_THAT(here.err, testing::HasSubstr("no step time is predicted: a micro-batch is too large to be tried here"));
  std::vector<std::string> elsewhere = large;
  elsewhere.insert(elsewhere.end(), {"--machine", "@machine.json"});
  const auto bytes_of = [](const Ended& ended) { return json_of(ended.out)["workspace"]["bytes"].get<double>(); };
  EXPECT_EQ(json_of(here.out)["workspace"]["measured"], false);
  EXPECT_NEAR(bytes_of(here), 1.3 * bytes_of(sluice(elsewhere)), 1);
  std::vector<std::string> what_if = large;
  what_if.insert(what_if.end(), {"--what-if", "drives=2"});
  const Ended refused = sluice(what_if);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.last_error_line(), testing::HasSubstr("--what-if: no step time can be predicted here"));
}

TEST_F(PredictionTest, of_blocks_that_are_too_large_to_be_timed_is_none_and_the_plan_is_still_made) {
  if (SLUICE_IS_SANITIZED) GTEST_SKIP() << "measuring a vocabulary of gigabytes takes a sanitizer minutes";
  constexpr int64_t kVocabulary = 64 * kMiB;
  // A quarter more than there is, of weights in bf16 and open gradients.
  const int64_t width = round_up(available_host_bytes() / 4 * 5 / (kVocabulary * (2 + 4)) + 1, 3);
  std::vector<std::string> command = {"plan",  "@run.json",
                                      "--set", "train_micro_batch_size_per_gpu=1",
                                      "--set", "data.sequence_length=2",
                                      "--set", "sluice.device_memory=1TiB",
                                      "--set", "sluice.host_memory=1TiB"};
  command.insert(command.end(), {"--set", "model.vocab_size=" + std::to_string(kVocabulary)});
  command.insert(command.end(), {"--set", "model.n_embd=" + std::to_string(width)});
  const Ended ended = sluice(command);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("no step time is predicted: timing its blocks takes"));
  EXPECT_THAT(ended.out, testing::HasSubstr("(measured)"));
}

TEST_F(PredictionTest, of_this_machine_is_measured_once) {
  const Ended first = sluice({"plan", "@run.json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, testing::HasSubstr("measuring this machine"));
  EXPECT_THAT(first.out, testing::HasSubstr("ms a step; alone nvme"));
  ASSERT_EQ(std::distance(fs::directory_iterator(file("cache/sluice")), fs::directory_iterator()), 1);
  const OrderedJson kept = ordered_json_of(read_whole(fs::directory_iterator(file("cache/sluice"))->path()));
  const OrderedJson& measured_for = kept["measured_for"];
  EXPECT_THAT(keys_of(measured_for), testing::ElementsAre("probe", "cpu", "cores", "drives", "io", "update_threads",
                                                          "compute_threads", "precision", "state_dtype", "optimizer"));
  EXPECT_EQ(measured_for["cpu"], make_topology()->cpu_name());
  EXPECT_EQ(measured_for["cores"], usable_cores(*make_topology()));
  EXPECT_EQ(measured_for["drives"].size(), 1u);
  const Ended second = sluice({"plan", "@run.json"});
  EXPECT_THAT(second.err, testing::Not(testing::HasSubstr("measuring this machine")));
  EXPECT_THAT(second.out, testing::HasSubstr("ms a step; alone nvme"));
}

TEST_F(PredictionTest, starts_from_drives_measured_within_the_hour_and_a_benchmark_from_its_own) {
  const auto says_again = testing::HasSubstr("measuring the drives again");
  ASSERT_EQ(sluice({"plan", "@run.json"}).exit_code, 0);
  const fs::path kept = fs::directory_iterator(file("cache/sluice"))->path();
  const OrderedJson at_first = ordered_json_of(read_whole(kept));
  OrderedJson wrong = at_first;
  for (const char* speed : {"read_gb_per_s", "mixed_gb_per_s"}) wrong[speed] = 1e-3;
  std::ofstream(kept) << wrong;
  const Ended soon = sluice({"plan", "@run.json"});
  EXPECT_THAT(soon.err, testing::Not(says_again));
  EXPECT_EQ(ordered_json_of(read_whole(kept)), wrong);
  const auto now = fs::last_write_time(kept);
  for (const auto hours : {2, -2}) {  // ago; a clock may have been set back
    std::ofstream(kept) << wrong;
    fs::last_write_time(kept, now - std::chrono::hours(hours));
    EXPECT_THAT(sluice({"plan", "@run.json"}).err, says_again);
    const OrderedJson later = ordered_json_of(read_whole(kept));
    EXPECT_GT(later["read_gb_per_s"], 1e-2);
    EXPECT_EQ(later["update_ns_per_element"], at_first["update_ns_per_element"]);
  }
  std::ofstream(kept) << wrong;
  fs::last_write_time(kept, now - std::chrono::hours(2));
  const Ended unmeasured = plan_on_a_full_drive();
  EXPECT_EQ(unmeasured.exit_code, 0);
  EXPECT_THAT(unmeasured.err, testing::HasSubstr("the drives' speeds are those kept before: "));
  EXPECT_EQ(ordered_json_of(read_whole(kept)), wrong);
  const Ended bench = sluice({"bench", "step", "@run.json", "--rounds", "1", "--steps", "1"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.err, says_again);
}

TEST_F(PredictionTest, of_this_machine_is_none_where_its_drives_cannot_be_measured_and_the_plan_is_still_made) {
  const Ended ended = plan_on_a_full_drive();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::ContainsRegex("no step time is predicted: .*No space left"));
  EXPECT_THAT(ended.out,
              testing::AllOf(testing::HasSubstr("disk needed"), testing::Not(testing::HasSubstr("predicted  "))));
  EXPECT_FALSE(fs::exists(file("cache")));
}

TEST_F(PredictionTest, for_a_store_of_two_drives_measures_them_with_the_shares_that_it_gives_them) {
  const auto measures_shares = testing::HasSubstr("measuring the drives with the shares that the store there gives");
  const std::string drives = "sluice.nvme=" + Json({file("a"), file("b")}).dump();
  const Ended made = train_here("run", {"--set", drives, "--steps", "1"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.err, testing::Not(measures_shares));
  const fs::path kept = fs::directory_iterator(file("cache/sluice"))->path();
  const std::string before = read_whole(kept);
  EXPECT_THAT(train_here("run", {"--set", drives, "--steps", "2", "--resume"}).err, measures_shares);
  EXPECT_EQ(read_whole(kept), before) << "what another store would start from";
  const Ended anew = train_here("run", {"--set", drives, "--steps", "1", "--overwrite"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, testing::Not(measures_shares)) << "its store gets shares of its own";
}

TEST_F(PredictionTest, of_a_start_that_trains_no_step_changes_no_offers_of_the_report) {
  const auto offers_after = [&](const std::string& state, const std::vector<std::string>& how) {
    std::vector<std::string> more = {"--set", "sluice.placement.state=" + state, "--set", "sluice.host_memory=8MiB"};
    more.insert(more.end(), how.begin(), how.end());
    EXPECT_EQ(train("run", more).exit_code, 0);
    return read_whole(file("run/would_help.json"));
  };
  const std::string before = offers_after("nvme", {"--steps", "3"});
  EXPECT_THAT(before, testing::HasSubstr("step_ms"));
  EXPECT_EQ(offers_after("host", {"--resume", "--steps", "3"}), before);
  EXPECT_NE(offers_after("host", {"--resume", "--steps", "4"}), before);
}

TEST_F(PredictionTest, from_a_file_that_is_wrong_is_refused_before_anything_is_made) {
  std::ofstream(file("machine.json")) << R"({"read_gb_per_s": 1})";
  const Ended ended = train("run");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("write_gb_per_s, mixed_gb_per_s, "));
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("measuring")));
  EXPECT_FALSE(fs::exists(file("run")));
  const Ended folder = train_here("run", {"--machine", file("")});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_THAT(folder.last_error_line(), testing::HasSubstr("is a folder"));
}

// As a shell's <(command) is.
TEST_F(PredictionTest, takes_speeds_from_what_can_be_read_once_alone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text = text_in("machine.json");
  ASSERT_EQ(write(ends[1], text.data(), text.size()), std::ssize(text));
  close(ends[1]);
  const Ended ended = sluice(
      {"plan", "@run.json", "--set", "sluice.placement.state=nvme", "--machine", "/dev/fd/" + std::to_string(ends[0])});
  close(ends[0]);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("nvme binds"));
}

TEST_F(PredictionTest, does_not_change_a_bit_of_what_is_trained) {
  const std::vector<std::string> early = {"--set", "sluice.update=speculative"};
  ASSERT_EQ(train_here("one", early).exit_code, 0);
  ASSERT_EQ(train("other", early).exit_code, 0);
  EXPECT_EQ(numbers(metrics("one")), numbers(metrics("other")));
}

TEST_F(PredictionTest, says_what_would_help_and_answers_what_if) {
  const std::vector<std::string> slow = {"plan",      "@run.json",    "--json", "--set", "sluice.placement.state=nvme",
                                         "--machine", "@machine.json"};
  std::vector<std::string> asked = slow;
  asked.insert(asked.end(), {"--what-if", "drives=2, tokens_per_step = 396", "--what-if", "host_memory=64MiB"});
  const Ended ended = sluice(asked);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out), what_if = plan["what_if"];
  EXPECT_EQ(what_if["drives"], 2);
  EXPECT_EQ(what_if["tokens_per_step"], 396);
  EXPECT_EQ(what_if["host_memory"], 64 << 20);
  EXPECT_EQ(what_if["device_memory"], 2 << 20);
  const double present_ms = plan["prediction"]["alone_ms"]["nvme"];
  EXPECT_LT(what_if["prediction"]["alone_ms"]["nvme"], 0.51 * present_ms);
  ASSERT_EQ(plan["would_help"].size(), 4u);
  for (const Json& offer : plan["would_help"]) {
    if (offer["with"].contains("drives")) {
      EXPECT_LT(offer["step_ms"], 0.6 * present_ms);
    }
  }
  EXPECT_EQ(json_of(sluice(slow).out)["prediction"], plan["prediction"]);  // the plan itself is as it was
}

TEST_F(PredictionTest, of_what_if_is_told_beside_what_there_is) {
  std::vector<std::string> asked = {
      "plan",      "@run.json",           "--set", "sluice.placement.state=nvme", "--machine", "@machine.json",
      "--what-if", "tokens_per_step=396", "--set", "sluice.commit_interval=3"};
  const std::string text = sluice(asked).out;
  asked.push_back("--json");
  const Json plan = json_of(sluice(asked).out), what_if = plan["what_if"];
  const StepTime present{.step_ms = plan["prediction"]["step_ms"], .tokens = 198};
  const StepTime changed{.step_ms = what_if["prediction"]["step_ms"], .tokens = 396};
  EXPECT_NE(present.step_ms, changed.step_ms);
  EXPECT_EQ(what_if["commit_interval"], plan["commit_interval"]);
  EXPECT_THAT(text, testing::HasSubstr("\nwhat if      tokens_per_step=396: " + step_times_words(present, changed) +
                                       ", a commit every " + plan["commit_interval"].dump() + " steps\n"));
}

TEST_F(PredictionTest, of_what_if_with_the_resources_of_an_offer_is_the_offers) {
  const Ended ended = sluice({"plan", "@run.json", "--json", "--set", "sluice.placement.state=nvme", "--machine",
                              "@machine.json", "--what-if", "host_memory=2MiB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json plan = json_of(ended.out);
  int offers = 0;
  for (const Json& offer : plan["would_help"]) {
    if (!offer["with"].contains("host_memory")) continue;
    ++offers;
    EXPECT_EQ(offer["with"]["host_memory"], plan["what_if"]["host_memory"]);
    EXPECT_EQ(offer["step_ms"], plan["what_if"]["prediction"]["step_ms"]);
  }
  EXPECT_EQ(offers, 1);
}

TEST_F(PredictionTest, of_what_if_with_a_wrong_key_or_value_is_refused) {
  for (const auto& [change, why] :
       {std::pair("memory=1GiB", "allowed is host_memory, device_memory, drives or"),
        std::pair("drives=0", "allowed is a whole number"), std::pair("drives=17", "from 1 to 16"),
        std::pair("drives", "= and a value are missing: write for example drives=2"),
        std::pair("tokens_per_step=100", "a multiple of a micro-batch's 99 tokens"),
        std::pair("drives=2,drives=3", "each key once"),
        std::pair("tokens_per_step=6488163",
                  "--what-if tokens_per_step=6488163: \"6488163\": allowed is a whole number from "
                  "1 to 6488064"),  // 65536 micro-batches
        std::pair("host_memory=9000000000000000000", "no more than 1.0 EiB"),
        std::pair(",", "--what-if ,: allowed is host_memory"),
        std::pair("drives=2,", "--what-if drives=2,: allowed is"),
        std::pair("host_memory=1KiB", "--what-if host_memory=1KiB: the budgets are too small")}) {
    const Ended ended = sluice({"plan", "@run.json", "--machine", "@machine.json", "--what-if", change, "--json"});
    EXPECT_EQ(ended.exit_code, 2);
    EXPECT_THAT(ended.last_error_line(), testing::HasSubstr(why));
  }
}

TEST_F(PredictionTest, of_this_machine_is_measured_anew_for_whatever_changes_its_speeds) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; of_this_machine_is_measured_once runs the same code";
  const auto words_of_plan = [&](const std::string& set) {
    const Ended ended = sluice({"plan", "@run.json", "--set", set});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.err;
  };
  const auto measures = testing::HasSubstr("measuring this machine");
  EXPECT_THAT(words_of_plan("seed=0"), measures);
  for (const std::string change : {"bf16.enabled=false", "sluice.io_depth=8", "sluice.update_threads=2"}) {
    EXPECT_THAT(words_of_plan(change), measures) << change;
    EXPECT_THAT(words_of_plan(change), testing::Not(measures)) << change;
  }
  EXPECT_THAT(words_of_plan("seed=1"), testing::Not(measures));
  const MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"), 256 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  EXPECT_THAT(words_of_plan("sluice.nvme=[\"" + file("drive") + "\"]"),
              testing::AllOf(measures, testing::HasSubstr(file("drive") + " is on no drive")));
}

}  // namespace
}  // namespace sluice
