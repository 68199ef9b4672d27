// What the command refuses, and the one line that says so.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/bytes.h"
#include "offload/gpu.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"
#include "tests/fakes/beside.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
class RefusalsTest : public CommandTest {};

void expect_refused(const Ended& ended, int exit_code, const std::string& words) {
  EXPECT_EQ(ended.exit_code, exit_code);
  EXPECT_EQ(ended.last_error_line().rfind("sluice: ", 0), 0u) << ended.err;
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr(words));
  EXPECT_THAT(ended.err, testing::Not(testing::HasSubstr("frame #")));
}

TEST_F(RefusalsTest, a_typo_in_a_configuration_is_one_line_and_nothing_is_made) {
  const Ended ended = train("run", {"--set", "sluice.host_memroy=8MiB"});
  expect_refused(ended, 2, "unknown key \"sluice.host_memroy\" (value \"8MiB\"); did you mean \"sluice.host_memory\"?");
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
  EXPECT_FALSE(fs::exists(file("run")));
  expect_refused(train("run", {"--set", "model.n_emb=72"}), 2, file("run.json") + ": unknown key \"model.n_emb\"");
  expect_refused(train("run", {"--set", "model.n_head=5"}), 2, file("run.json") + ": model.n_head is 5");
  expect_refused(train("run", {"--set", "model.path=5"}), 2, "model.path is 5");
  expect_refused(train("run", {"--set", "data.sequence_length=34"}), 2,
                 file("run.json") + ": data.sequence_length is 34");
}

TEST_F(RefusalsTest, a_trace_with_the_name_of_a_file_of_the_run_is_refused_before_anything_is_made) {
  for (const std::string name : {"metrics.jsonl", "timeline.json", "sluice-0.swap"}) {
    const Ended ended = train("run", {"--trace", file("run/" + name)});
    EXPECT_EQ(ended.exit_code, 2) << name;
    EXPECT_THAT(ended.last_error_line(), HasSubstr("name another one for the trace"));
    EXPECT_FALSE(fs::exists(file("run")));
  }
  fs::create_directory(file("drive"));
  fs::create_directory_symlink(file("drive"), file("link"));
  const std::string on_drive = "sluice.nvme=[\"" + file("drive") + "\"]";
  expect_refused(train("run/", {"--trace", file("run/metrics.jsonl")}), 2, "name another one for the trace");
  fs::create_symlink(file("run/metrics.jsonl"), file("link.json"));
  expect_refused(train("run", {"--trace", file("link.json")}), 2, "name another one for the trace");
  expect_refused(train("run", {"--set", on_drive, "--trace", file("drive/sluice-0.swap")}), 2, "for the trace");
  expect_refused(train("link", {"--trace", file("drive/timeline.json")}), 2, "for the trace");
}

TEST_F(RefusalsTest, a_folder_with_a_slash_at_its_end_is_the_same_folder) {
  ASSERT_EQ(train("run/", {"--steps", "1"}).exit_code, 0);
  const std::string here = "sluice.nvme=[\"" + file("run") + "/\"]";
  const Ended again = train("run", {"--steps", "1", "--overwrite", "--set", here});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, testing::Not(HasSubstr("warning")));
  ASSERT_EQ(sluice({"report", file("run/")}).exit_code, 0);
  EXPECT_THAT(text_in("run/report.html"), HasSubstr("<title>run "));
  const Ended tuned = sluice({"tune", "@run.json", "--out", file("run/metrics.jsonl")});
  expect_refused(tuned, 2, "a run writes a file of that name there itself");
}

TEST_F(RefusalsTest, a_gpu_that_is_not_there_is_missed_before_anything_is_made) {
  const std::string missing = why_no_gpu();
  if (missing.empty()) GTEST_SKIP() << "a GPU answers here";
  expect_refused(train("run", {"--device", "cuda"}), 1, "--device cuda (sluice.device): " + missing);
  expect_refused(train("run", {"--set", "sluice.device=cuda"}), 1, missing);
  EXPECT_FALSE(fs::exists(file("run")));
  expect_refused(sluice({"plan", "@run.json", "--device", "cuda"}), 1, missing);
  expect_refused(sluice({"bench", "step", "@run.json", "--device", "cuda"}), 1, missing);
  expect_refused(sluice({"tune", "@run.json", "--device", "cuda"}), 1, missing);
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  expect_refused(sluice({"generate", "@run", "--prompt", "x", "--tokens", "1", "--device", "cuda"}), 1, missing);
  expect_refused(sluice({"checkpoint", "export", "@run", "@out", "--device", "cuda"}), 1, missing);
}

TEST_F(RefusalsTest, a_device_that_nobody_knows_is_refused) {
  expect_refused(train("run", {"--device", "tpu"}), 2, "tpu is no device: allowed are auto, cuda and cpu");
  expect_refused(train("run", {"--set", "sluice.device=tpu"}), 2, "\"sluice.device\" is \"tpu\"; allowed: ");
  EXPECT_EQ(train("run", {"--device", "cpu", "--set", "sluice.device=cuda", "--steps", "1"}).exit_code, 0);
}

TEST_F(RefusalsTest, a_bad_command_line_is_one_line) {
  const std::vector<std::vector<std::string>> lines = {{},
                                                       {"trian"},
                                                       {"train"},
                                                       {"train", "@run.json", "--steps", "0"},
                                                       {"train", "@run.json", "--bogus"},
                                                       {"train", "@run.json", "--sample-tokens", "3"},
                                                       {"generate", "@run", "--prompt", "x"},
                                                       {"train", "@run.json", "--resume", "--overwrite"}};
  for (const std::vector<std::string>& line : lines) {
    const Ended ended = sluice(line);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_THAT(ended.err, testing::StartsWith("sluice: "));
  }
}

TEST_F(RefusalsTest, a_name_that_is_empty_is_not_taken_for_none) {
  for (const char* option : {"--out", "--data", "--machine", "--trace"}) {
    const Ended ended = sluice({"train", "@run.json", option, ""});
    EXPECT_EQ(ended.exit_code, 2) << option;
    EXPECT_THAT(ended.last_error_line(),
                testing::AllOf(testing::HasSubstr(option), testing::HasSubstr("a name is needed")));
  }
  EXPECT_EQ(sluice({"report", ""}).exit_code, 2);
  EXPECT_EQ(sluice({"tune", "@run.json", "--data", ""}).exit_code, 2);
  expect_refused(sluice({"train", "@run.json", "--sample", ""}), 2, "--sample: a text is needed");
  expect_refused(sluice({"bench", "step", "@run.json", "--machine", ""}), 2, "--machine: a name is needed");
  expect_refused(sluice({"bench", "copy", "--path", ""}), 2, "--path: a name is needed");
}

TEST_F(RefusalsTest, an_integer_is_read_as_it_is_written_or_not_at_all) {
  const std::vector<std::vector<std::string>> options = {{"bench", "io", "--path", "@drive", "--depth"},
                                                         {"bench", "io", "--path", "@drive", "--rounds"},
                                                         {"bench", "copy", "--rounds"},
                                                         {"bench", "adam", "--threads"},
                                                         {"bench", "adam", "--elements"},
                                                         {"bench", "step", "@run.json", "--rounds"},
                                                         {"bench", "step", "@run.json", "--steps"},
                                                         {"tune", "@run.json", "--trials"},
                                                         {"tune", "@run.json", "--steps"},
                                                         {"train", "@run.json", "--steps"}};
  for (std::vector<std::string> line : options) {  // what the check takes: whole_number_test.cpp
    line.emplace_back("010");
    expect_refused(sluice(line), 2, line[line.size() - 2] + ": 010 is not a");
  }
  expect_refused(sluice({"tune", "@run.json", "--trials", "101"}), 2, "101 is not an integer from 1 to 100");
}

TEST_F(RefusalsTest, a_limit_on_the_size_of_files_is_named_and_kills_nothing) {
  const auto limited = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"prlimit", "--fsize=65536", beside_this_program("sluice")});
    return run_process(arguments);
  };
  const Ended trained =
      limited({"train", file("run.json"), "--data", file("text.txt"), "--out", file("run"), "--steps", "1"});
  expect_refused(trained, 1, "ulimit -f");
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
  expect_refused(limited({"bench", "io", "--path", file("drive"), "--size", "16MiB"}), 1, "ulimit -f");
  expect_refused(limited({"bench", "io", "--path", file("drive"), "--size", "16MiB", "--sweep"}), 1, "ulimit -f");
  EXPECT_FALSE(fs::exists(file("drive")));
}

TEST_F(RefusalsTest, a_store_is_never_replaced_unasked) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  const Ended ended = train("run");
  expect_refused(ended, 2, "--resume");
  expect_refused(ended, 2, "--overwrite");
  EXPECT_EQ(metrics("run").size(), 3u);
  EXPECT_EQ(train("run", {"--overwrite"}).exit_code, 0);
  EXPECT_EQ(metrics("run").size(), 7u);
}

TEST_F(RefusalsTest, what_is_in_the_way_is_named_for_what_it_is) {
  const std::string drive = "sluice.nvme=[\"" + file("drive") + "\"]";
  ASSERT_EQ(train("mine", {"--steps", "1", "--set", drive}).exit_code, 0);
  const Ended store = train("other", {"--steps", "1", "--set", drive});
  for (const std::string& words : {file("drive"), "no run in " + file("other"), std::string("sluice.nvme"),
                                   std::string("--resume"), std::string("--overwrite")}) {
    expect_refused(store, 2, words);
  }
  const Ended over = train("other", {"--steps", "1", "--set", drive, "--overwrite"});
  EXPECT_EQ(over.exit_code, 0) << over.err;
  EXPECT_THAT(over.err, testing::HasSubstr("it belongs to no run in " + file("other")));
  ASSERT_EQ(sluice({"checkpoint", "trim", "@other", "--yes"}).exit_code, 0);
  const Ended run = train("other", {"--steps", "1", "--set", drive});
  for (const std::string& words : {file("other") + ": a run is there", "its store is not in " + file("drive")}) {
    expect_refused(run, 2, words);
  }
}

TEST_F(RefusalsTest, a_run_is_not_resumed_as_another_one) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  expect_refused(train("run", {"--resume", "--seed", "4"}), 2, "\"seed\" 0 and not 4");
  expect_refused(train("run", {"--resume", "--set", "data.shuffle=false"}), 2, "\"data.shuffle\" true and not false");
  expect_refused(train("run", {"--resume", "--set", "model.n_layer=3"}), 2, "\"model.n_layer\" 2 and not 3");
  expect_refused(train("run", {"--resume", "--set", "bf16.enabled=false"}), 2, "\"bf16.enabled\" true and not false");
  EXPECT_EQ(metrics("run").size(), 3u);
}

TEST_F(RefusalsTest, a_run_is_not_resumed_on_another_text) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  fs::remove(file("run/tokens.cache"));
  std::ofstream(file("text.txt"), std::ios::app) << "one more line\n";
  expect_refused(train("run", {"--resume"}), 2, "the text is not the one that the run there was trained on");
  EXPECT_EQ(metrics("run").size(), 3u);
}

TEST_F(RefusalsTest, a_command_that_is_not_there_is_named_with_those_that_are) {
  expect_refused(
      sluice({"trian", "@run.json"}), 2,
      "there is no command \"trian\"; allowed: train, plan, tune, generate, report, checkpoint, bench, info");
}

TEST_F(RefusalsTest, an_option_before_the_command_is_named_unless_it_is_sluice_s_own) {
  expect_refused(sluice({"--resume", "train", "@run.json"}), 2, "there is no option --resume before a command");
  expect_refused(sluice({"--frobnicate"}), 2, "there is no option --frobnicate before a command");
  const Ended version = sluice({"--version"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_THAT(version.out, testing::MatchesRegex("sluice [0-9.]+\n"));
}

TEST_F(RefusalsTest, a_resume_of_nothing_starts_from_the_beginning_and_says_so_but_from_no_later_step) {
  expect_refused(train("run", {"--resume", "--from-step", "3"}), 2, "no run is there that could go on from step 3");
  const Ended ended = train("run", {"--resume"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("starting from the beginning"));
  EXPECT_EQ(metrics("run").size(), 7u);
}

// The number of bytes that the error names for a tier: "host_memory 123 ...".
std::string smallest(const std::string& line, const std::string& key) {
  const auto found = matches_of(key + "[^0-9]*([0-9]+)", line);
  return found.empty() ? "" : found.back()[1];
}

TEST_F(RefusalsTest, small_budgets_are_refused_with_the_smallest_that_will_do) {
  const Ended ended = train("run", {"--set", "sluice.host_memory=64KiB"});
  expect_refused(ended, 2, "host_memory");
  const std::string host = smallest(ended.last_error_line(), "host_memory");
  ASSERT_GT(std::stoll(host), 65536) << ended.last_error_line();
  const Ended good = train("run", {"--set", "sluice.host_memory=" + host});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const Ended bad = train("other", {"--set", "sluice.host_memory=" + std::to_string(std::stoll(host) - 1)});
  EXPECT_EQ(bad.exit_code, 2) << host;
}

TEST_F(RefusalsTest, a_small_device_budget_is_refused_with_the_smallest_that_will_do) {
  const Ended ended = train("run", {"--set", "sluice.device_memory=64KiB"});
  expect_refused(ended, 2, "device_memory");
  const std::string device = smallest(ended.last_error_line(), "device_memory");
  ASSERT_GT(std::stoll(device), 65536) << ended.last_error_line();
  const Ended good = train("run", {"--set", "sluice.device_memory=" + device});
  EXPECT_EQ(good.exit_code, 0) << good.err;
}

TEST_F(RefusalsTest, a_drive_that_is_too_small_is_refused_with_what_is_needed_and_free) {
  const MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"), 256 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const Ended ended = train("run", {"--set", "sluice.nvme=[\"" + file("drive") + "\"]"});
  expect_refused(ended, 2, "the drive is too small: the store needs");
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr(file("drive")));
  EXPECT_THAT(ended.last_error_line(), testing::HasSubstr("256.0 KiB (262144 bytes) are free"));
  const Ended plan = sluice({"plan", "@run.json", "--set", "sluice.nvme=[\"" + file("drive") + "\"]"});
  EXPECT_EQ(plan.exit_code, 0);
  EXPECT_THAT(plan.err,
              testing::HasSubstr("no run can be begun with this plan here: " + file("drive") + ": the drive is too"));
  const Ended elsewhere =
      sluice({"plan", "@run.json", "--machine", "@machine.json", "--set", "sluice.nvme=[\"" + file("drive") + "\"]"});
  EXPECT_EQ(elsewhere.exit_code, 0);
  EXPECT_THAT(elsewhere.err, testing::Not(HasSubstr("no run can be begun")));
}

TEST_F(RefusalsTest, folders_of_one_drive_share_its_space_and_several_drives_add_up) {
  const int64_t needed = json_of(sluice({"plan", "@run.json", "--json"}).out)["disk_bytes"];
  const int64_t room = round_up(needed * 2 / 3, 4096);
  const MountedDrive one(MountedDrive::Kind::kMemory, file("one"), room);
  if (!one.reason().empty()) GTEST_SKIP() << one.reason();
  const MountedDrive other(MountedDrive::Kind::kMemory, file("other"), 64 * kKiB);
  const auto train_in = [&](const std::string& first, const std::string& second) {
    return train("run", {"--set", "sluice.nvme=[\"" + file(first) + "\",\"" + file(second) + "\"]"});
  };
  const Ended shared = train_in("one/a", "one/b");
  expect_refused(shared, 2, file("one/a") + ", " + file("one/b") + ": the drive is too small: the store needs");
  EXPECT_THAT(shared.last_error_line(), testing::HasSubstr(std::to_string(room) + " bytes) are free"));
  const Ended together = train_in("one", "other");
  expect_refused(together, 2, "the drives are together too small");
  EXPECT_THAT(together.last_error_line(), testing::HasSubstr(std::to_string(room + 64 * kKiB) + " bytes) are free"));
  EXPECT_FALSE(fs::exists(file("run")));
  EXPECT_TRUE(fs::is_empty(file("one")));
}

// Its headers and tables alone do not fit.
TEST_F(RefusalsTest, a_drive_too_small_for_the_least_of_a_store_is_refused_before_anything_is_made) {
  const int64_t needed = json_of(sluice({"plan", "@run.json", "--json"}).out)["disk_bytes"];
  const MountedDrive large(MountedDrive::Kind::kMemory, file("large"), round_up(needed * 2, 4096));
  if (!large.reason().empty()) GTEST_SKIP() << large.reason();
  const MountedDrive small(MountedDrive::Kind::kMemory, file("small"), 64 * kKiB);
  const std::string drives = "sluice.nvme=[\"" + file("large/new") + "\",\"" + file("small") + "\"]";
  const Ended ended = train("run", {"--set", drives});
  expect_refused(ended, 2, file("small") + ": the drive is too small: ");
  EXPECT_THAT(ended.last_error_line(),
              testing::AllOf(HasSubstr("64.0 KiB (65536 bytes) are free"), HasSubstr("leave it out of sluice.nvme")));
  EXPECT_FALSE(fs::exists(file("run")));
  EXPECT_FALSE(fs::exists(file("large/new")));
}

TEST_F(RefusalsTest, text_that_is_missing_or_too_short_is_named) {
  expect_refused(sluice({"train", "@run.json", "--out", "@run"}), 2, "data.path is not given");
  const Ended nothing = sluice({"train", "@run.json", "--out", "@run", "--data", "@nothing"});
  expect_refused(nothing, 2, file("nothing"));
  EXPECT_THAT(nothing.err, testing::Not(HasSubstr("measuring"))) << "what takes time comes after what is refused";
  std::ofstream(file("short.txt")) << "too short to fill one batch";
  const Ended ended = sluice({"train", "@run.json", "--out", "@run", "--data", "@short.txt"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
}

TEST_F(RefusalsTest, a_refused_run_leaves_no_folder_behind) {
  fs::create_directory(file("textless"));  // which shows as the text is read, in the run's folder
  expect_refused(sluice({"train", "@run.json", "--out", "@new/run", "--data", "@textless"}), 2, "textless");
  EXPECT_FALSE(fs::exists(file("new")));
  const std::string drives = "sluice.nvme=[\"" + file("drives/a") + "\", \"" + file("drives/b") + "\", \"/proc/nope\"]";
  expect_refused(train("new/run", {"--set", drives}), 1, "/proc/nope");
  EXPECT_FALSE(fs::exists(file("new")));
  EXPECT_FALSE(fs::exists(file("drives")));
  fs::create_directory(file("mine"));
  expect_refused(sluice({"train", "@run.json", "--out", "@mine", "--data", "@textless"}), 2, "textless");
  EXPECT_TRUE(fs::exists(file("mine")));
  fs::create_symlink(file("not_mounted"), file("link"));
  expect_refused(train("link/run"), 1, "creation of");
  EXPECT_TRUE(fs::is_symlink(file("link")));
}

TEST_F(RefusalsTest, commands_on_a_folder_without_a_run_name_it) {
  expect_refused(sluice({"generate", "@none", "--prompt", "x", "--tokens", "3"}), 2,
                 file("none") + ": no run is there");
  expect_refused(sluice({"checkpoint", "export", "@none", "@out"}), 2, file("none") + ": no run is there");
}

TEST_F(RefusalsTest, a_tokenizer_with_more_ids_than_the_model_is_refused) {
  expect_refused(train("run", {"--set", "model.vocab_size=100"}), 2, "gives 256 ids and model.vocab_size is 100");
}

TEST_F(RefusalsTest, a_vocabulary_of_the_model_alone_that_sentencepiece_cannot_have_is_refused) {
  const std::string words = "data.vocab_size, not given, is model.vocab_size 256: sentencepiece takes 300 to 1000000";
  const std::vector<std::string> small = {"--set", "data.tokenizer=sentencepiece", "--set", "model.vocab_size=256"};
  expect_refused(train("run", small), 2, words);
  std::vector<std::string> plan = {"plan", "@run.json", "--machine", "@machine.json"};
  plan.insert(plan.end(), small.begin(), small.end());
  expect_refused(sluice(plan), 2, words);
}

// Its store is on another drive, where no lock of the first one's is met.
TEST_F(RefusalsTest, a_second_run_in_a_folder_is_refused_while_the_first_one_is_there) {
  const std::string first = "sluice.nvme=[\"" + file("a") + "\"]", second = "sluice.nvme=[\"" + file("b") + "\"]";
  ASSERT_EQ(train("run", {"--steps", "2", "--set", first}).exit_code, 0);
  const int folder = open(file("run").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);  // as a run has it
  for (const char* how : {"--overwrite", "--resume"}) {
    const Ended refused = train("run", {"--steps", "3", "--set", second, how});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr("in use by another run"));
  }
  close(folder);
  EXPECT_FALSE(fs::exists(file("b")));
  EXPECT_EQ(train("run", {"--steps", "3", "--set", first, "--resume"}).exit_code, 0);
}

TEST_F(RefusalsTest, what_is_replaced_and_what_stays_behind_is_told) {
  const std::string a = "sluice.nvme=[\"" + file("a") + "\"]", b = "sluice.nvme=[\"" + file("b") + "\"]";
  ASSERT_EQ(train("one", {"--steps", "1", "--set", a}).exit_code, 0);
  ASSERT_EQ(train("two", {"--steps", "1", "--set", b}).exit_code, 0);
  const Ended ended = train("one", {"--steps", "1", "--set", b, "--overwrite"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err,
              HasSubstr(file("b") + ": the store there is to be replaced; it belongs to no run in " + file("one")));
  EXPECT_THAT(ended.err, HasSubstr(file("a/sluice-0.swap") +
                                   ": the store of the run that is replaced stays there; once the new run has begun"));
}

// As of `| tee log`, which Ctrl-C ends before the run has committed its step.
TEST_F(RefusalsTest, a_reader_of_the_log_that_ends_does_not_end_the_run) {
  const std::string command = beside_this_program("sluice") + " train " + file("run.json") + " --data " +
                              file("text.txt") + " --steps 4 --set steps_per_print=1 --out " + file("run") +
                              " 2>&1 | grep -m 1 'step 1/'";
  ASSERT_EQ(run_process({"/bin/sh", "-c", command}).exit_code, 0);
  EXPECT_EQ(metrics("run").size(), 5u);  // four steps and the final line
}

TEST_F(RefusalsTest, a_run_whose_configuration_is_damaged_can_be_begun_again) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  fs::resize_file(file("run/config.json"), 40);
  const auto begin_again = [this] {
    const Ended ended = train("run", {"--steps", "1", "--overwrite"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("where the store of the run that is replaced lies cannot be told"));
  };
  begin_again();
  // As after a power cut: the file has its length and no bytes.
  for (const char* name : {"run/config.json", "run/store.json"}) std::ofstream(file(name)) << std::string(400, '\0');
  begin_again();
}

TEST_F(RefusalsTest, what_is_missing_or_damaged_in_a_runs_folder_is_named_with_what_to_do) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const std::string config = text_in("run/config.json");
  const auto each_says = [this](const std::string& words) {
    for (const std::vector<std::string>& reading :
         {std::vector<std::string>{"checkpoint", "verify", "@run"},
          std::vector<std::string>{"checkpoint", "export", "@run", "@out"},
          std::vector<std::string>{"generate", "@run", "--prompt", "x", "--tokens", "1"}}) {
      const Ended ended = sluice(reading);
      EXPECT_EQ(ended.exit_code, 2);
      EXPECT_THAT(ended.last_error_line(), HasSubstr(words)) << reading.front();
    }
  };
  std::ofstream(file("run/config.json")) << config.substr(0, config.size() / 2);
  each_says(file("run/config.json") + ": is damaged: no JSON as a run writes it: bring the file back, or begin again");
  std::ofstream(file("run/config.json")) << "{}";
  each_says(file("run") +
            ": the config.json there is not a run's, and other files of one are there: put the run's in "
            "its place, or move it away and begin again");
  fs::remove(file("run/config.json"));
  each_says(file("run") +
            ": the run's config.json is gone, and other files of one are there: bring that back, or begin");
  fs::remove(file("run/store.json"));
  EXPECT_THAT(sluice({"checkpoint", "verify", "@run"}).last_error_line(), HasSubstr("the run's config.json is gone"));
  std::ofstream(file("run/config.json")) << config;
  fs::remove(file("run/sluice-0.swap"));
  each_says(file("run") + ": the run's store is not in " + file("run") + " any more");
}

// The numbers of closed streams are given to the next files that are opened.
TEST_F(RefusalsTest, closed_standard_streams_cost_no_file_its_content) {
  for (const char* closed : {"2>&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    fs::remove_all(file("run"));
    const std::string command = beside_this_program("sluice") + " train " + file("run.json") + " --data " +
                                file("text.txt") + " --steps 3 --set steps_per_print=1 --out " + file("run") + " ";
    ASSERT_EQ(run_process({"/bin/sh", "-c", command + closed}).exit_code, 0) << closed;
    const Ended more = train("run", {"--steps", "4", "--resume"});
    ASSERT_EQ(more.exit_code, 0) << closed << more.err;
    EXPECT_EQ(metrics("run").size(), 5u) << closed;  // four steps and the final line
    EXPECT_THAT(more.err, testing::Not(HasSubstr("damaged"))) << closed;
  }
}

TEST_F(RefusalsTest, a_run_is_not_resumed_with_steps_of_another_size) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  const Ended ended = train("run", {"--resume", "--set", "gradient_accumulation_steps=3"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_THAT(ended.last_error_line(), HasSubstr("\"train_batch_size\" 6 and not 9"));
}

TEST_F(RefusalsTest, a_run_is_not_resumed_with_another_seed_in_its_file) {
  ASSERT_EQ(train("run", {"--steps", "1", "--seed", "4"}).exit_code, 0);
  for (const char* other : {"0", "5"}) {
    const Ended ended = train("run", {"--resume", "--set", std::string("seed=") + other});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.last_error_line(), HasSubstr(std::string("\"seed\" 4 and not ") + other));
  }
  EXPECT_EQ(train("run", {"--resume", "--steps", "2"}).exit_code, 0);
}

TEST_F(RefusalsTest, a_run_is_not_gone_on_with_and_begun_again_at_once) {
  const Ended ended = train("run", {"--resume", "--overwrite"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_THAT(ended.last_error_line(), HasSubstr("excludes"));
  EXPECT_FALSE(fs::exists(file("run")));
}

TEST_F(RefusalsTest, a_temperature_below_0_is_refused) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  for (const char* temperature : {"-1", "warm"}) {
    const Ended ended = sluice({"generate", "@run", "--prompt", "x", "--tokens", "1", "--temperature", temperature});
    EXPECT_EQ(ended.exit_code, 2) << temperature;
    EXPECT_THAT(ended.last_error_line(), HasSubstr("not a number, 0 or more"));
  }
}

TEST_F(RefusalsTest, the_room_of_the_store_that_is_replaced_counts_as_free) {
  const Json plan = json_of(sluice({"plan", "@run.json", "--json", "--set", kFixedHomes}).out);
  const MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"),
                           round_up(plan["disk_bytes"].get<int64_t>(), 4096) + 64 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::string nvme = "sluice.nvme=[\"" + file("drive") + "\"]";
  const std::vector<std::string> once = {"--set",   nvme, "--set", kFixedHomes, "--set", "sluice.io_backend=threads",
                                         "--steps", "1"};
  ASSERT_EQ(train("run", once).exit_code, 0);
  std::vector<std::string> again = once;
  again.emplace_back("--overwrite");
  const Ended ended = train("run", again);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

TEST_F(RefusalsTest, where_neither_budget_alone_would_do_a_pair_is_named_that_does) {
  const auto plan = [&](const std::string& device, const std::string& host) {
    return sluice({"plan", "@run.json", "--set", "sluice.device_memory=" + device, "--set",
                   "sluice.host_memory=" + host, "--machine", "@machine.json"});
  };
  const Ended ended = plan("1KiB", "1KiB");
  EXPECT_EQ(ended.exit_code, 2);
  const std::string line = ended.last_error_line();
  const auto pairs = matches_of("smallest pair: device_memory ([0-9]+) \\(.*\\), host_memory ([0-9]+) \\(", line);
  ASSERT_EQ(pairs.size(), 1u) << line;
  const std::string &device = pairs[0][1], &host = pairs[0][2];
  EXPECT_EQ(plan(device, host).exit_code, 0);
  EXPECT_EQ(plan(device, std::to_string(std::stoll(host) - 1)).exit_code, 2);
}

}  // namespace
}  // namespace sluice
