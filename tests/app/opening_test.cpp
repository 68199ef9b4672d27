// What training does with a folder where something is already: nothing of a run is lost to a command that is refused.
#include <sys/mount.h>

#include <thread>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class OpeningTest : public CommandTest {
 protected:
  static void expect_refused(const Ended& ended, const std::string& words) {
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_EQ(ended.last_error_line().rfind("sluice: ", 0), 0u) << ended.err;
    EXPECT_THAT(ended.last_error_line(), HasSubstr(words));
  }
  // What a folder holds, by names and bytes.
  std::map<std::string, std::string> content_of(const std::string& name) const {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::directory_iterator(file(name))) {
      const std::string leaf = entry.path().filename().string();
      content[leaf] = entry.is_directory() ? "a folder" : text_in(name + "/" + leaf);
    }
    return content;
  }
  void write_other_text() const {
    std::ofstream text(file("other.txt"));
    for (int i = 0; i < 500; ++i) text << "another line " << i << "\n";
  }
};

TEST_F(OpeningTest, an_overwrite_that_is_refused_leaves_the_run_as_it_was) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  const auto before = content_of("run");
  write_other_text();
  std::ofstream(file("short.txt")) << "too short for a sample";
  const auto overwrite = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train", "@run.json", "--data", "@" + text, "--out", "@run", "--overwrite"};
    all.insert(all.end(), more.begin(), more.end());
    return sluice(all);
  };
  expect_refused(overwrite("short.txt", {}), "fewer than one sample");
  // Known only when the text is already read.
  expect_refused(overwrite("other.txt", {"--trace", "@no-such-folder/trace.json"}), "no-such-folder");
  EXPECT_TRUE(content_of("run") == before);
  fs::rename(file("run/metrics.jsonl"), file("kept.jsonl"));
  fs::create_directory(file("run/metrics.jsonl"));
  const auto without_metrics = content_of("run");
  expect_refused(overwrite("text.txt", {}), "metrics.jsonl: is no file");
  EXPECT_TRUE(content_of("run") == without_metrics);
  fs::remove(file("run/metrics.jsonl"));
  fs::rename(file("kept.jsonl"), file("run/metrics.jsonl"));
  ASSERT_EQ(train("whole").exit_code, 0);
  ASSERT_EQ(train("run", {"--resume"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("run")), numbers(metrics("whole")));
}

TEST_F(OpeningTest, a_file_of_somebody_else_is_named_and_lost_to_no_beginning) {
  for (const char* name : {"a", "b"}) fs::create_directory(file(name));
  std::ofstream(file("b/sluice-0.swap")) << "precious";
  const std::string drives = "sluice.nvme=[\"" + file("a") + "\",\"" + file("b") + "\"]";
  expect_refused(train("run", {"--set", drives}),
                 file("b/sluice-0.swap") + ": what is there cannot be read as a store");
  expect_refused(train("run", {"--set", drives, "--resume"}), file("a/sluice-0.swap"));
  const std::string drive = "sluice.nvme=[\"" + file("b") + "\"]";
  expect_refused(train("run", {"--set", drive, "--resume"}), file("b/sluice-0.swap") + " is not a store of sluice");
  EXPECT_EQ(text_in("b/sluice-0.swap"), "precious");
  fs::remove(file("b/sluice-0.swap"));
  fs::create_directory(file("b/sluice-0.swap"));
  expect_refused(train("run", {"--set", drive}), file("b/sluice-0.swap") + ": a folder of that name is there");
}

TEST_F(OpeningTest, an_overwrite_follows_no_link_to_what_is_no_store_and_names_a_file_that_is_none) {
  fs::create_directory(file("b"));
  std::ofstream(file("precious")) << "precious";
  fs::create_symlink("../precious", file("b/sluice-0.swap"));
  const std::vector<std::string> over = {"--overwrite", "--steps", "1", "--set",
                                         "sluice.nvme=[\"" + file("a") + "\",\"" + file("b") + "\"]"};
  expect_refused(train("run", over), "b/sluice-0.swap: leads to " + file("precious") + ", which cannot be read as a");
  EXPECT_EQ(text_in("precious"), "precious");
  EXPECT_FALSE(fs::exists(file("a")));
  fs::remove(file("b/sluice-0.swap"));
  fs::rename(file("precious"), file("b/sluice-0.swap"));
  const Ended replaced = train("run", over);
  EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_THAT(replaced.err,
              HasSubstr("b/sluice-0.swap: what is there is to be replaced; it cannot be read as a store"));
  fs::rename(file("b/sluice-0.swap"), file("elsewhere"));
  fs::create_symlink(file("elsewhere"), file("b/sluice-0.swap"));
  EXPECT_EQ(train("run", over).exit_code, 0) << "a link to a store";
}

TEST_F(OpeningTest, a_resume_on_another_text_is_refused_and_the_right_text_still_goes_on) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  write_other_text();
  const auto resume_on = [&](const std::string& text) {
    return sluice({"train", "@run.json", "--data", "@" + text, "--out", "@run", "--steps", "6", "--resume"});
  };
  expect_refused(resume_on("other.txt"), "the text is not the one that the run there was trained on");
  expect_refused(resume_on("nothing.txt"), file("nothing.txt"));
  fs::remove(file("run/tokens.cache"));
  fs::remove(file("run/tokenizer.cache"));
  expect_refused(resume_on("other.txt"), "the text is not the one that the run there was trained on");
  EXPECT_FALSE(fs::exists(file("run/tokens.cache")));
  fs::rename(file("text.txt"), file("moved.txt"));
  ASSERT_EQ(resume_on("moved.txt").exit_code, 0);
  EXPECT_EQ(metrics("run").size(), 7u);
}

// The folder takes no file any more: known before the store, which is elsewhere, is replaced.
TEST_F(OpeningTest, an_overwrite_in_a_folder_that_takes_no_files_leaves_the_run_as_it_was) {
  MountedDrive drive(MountedDrive::Kind::kMemory, file("drive"), 16 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::string store = "sluice.nvme=[\"" + file("store") + "\"]";
  ASSERT_EQ(train("drive/run", {"--steps", "2", "--set", store}).exit_code, 0);
  const auto before = content_of("store");
  drive.make_read_only();
  expect_refused(train("drive/run", {"--overwrite", "--set", store}), "Read-only file system");
  drive.make_writable();
  EXPECT_TRUE(content_of("store") == before);
  EXPECT_EQ(train("drive/run", {"--resume", "--set", store}).exit_code, 0);
}

TEST_F(OpeningTest, a_run_whose_configuration_is_gone_is_not_called_anothers) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  fs::rename(file("run/config.json"), file("kept.json"));
  expect_refused(train("run", {"--resume"}),
                 "the run's config.json is gone, its store is at step 2: bring the file back");
  fs::create_directory(file("run/config.json"));
  expect_refused(sluice({"generate", "@run", "--prompt", "x", "--tokens", "1"}), "config.json: is a folder");
  fs::remove(file("run/config.json"));
  fs::rename(file("kept.json"), file("run/config.json"));
  EXPECT_EQ(train("run", {"--resume"}).exit_code, 0);
}

// As the threads: they divide sums.
TEST_F(OpeningTest, a_resumed_run_keeps_its_tiles_of_the_loss_unless_others_are_asked_for) {
  const auto tile = [this] { return json_in("run/config.json")["sluice"]["loss_tile_tokens"].dump(); };
  ASSERT_EQ(train("run", {"--steps", "1", "--set", "sluice.loss_tile_tokens=7"}).exit_code, 0);
  ASSERT_EQ(train("run", {"--steps", "2", "--resume"}).exit_code, 0);
  EXPECT_EQ(tile(), "7");
  ASSERT_EQ(train("run", {"--steps", "3", "--resume", "--set", "sluice.loss_tile_tokens=8"}).exit_code, 0);
  EXPECT_EQ(tile(), "8");
}

// Not a byte: the store is not made longer for what the refused run would have kept there, a trace is not begun.
TEST_F(OpeningTest, a_resume_that_is_refused_changes_no_file) {
  ASSERT_EQ(train("run", {"--steps", "2", "--trace", "@run/trace.json"}).exit_code, 0);
  write_other_text();
  const auto before = content_of("run");
  const std::string on_drive = R"(sluice.placement={"weights": "nvme", "gradient": "nvme", "activations": "nvme"})";
  const auto resume = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"train",          "@run.json", "--data", "@" + text,  "--steps",       "6",
                                    "--resume",       "--set",     on_drive, "--machine", "@machine.json", "--trace",
                                    "@run/trace.json"};
    all.insert(all.end(), more.begin(), more.end());
    return sluice(all);
  };
  expect_refused(resume("other.txt", {"--out", "@run"}), "the text is not the one");
  EXPECT_TRUE(content_of("run") == before);
  const std::vector<std::string> from_another = {"--out", "@another", "--set", "sluice.nvme=[\"" + file("run") + "\"]"};
  expect_refused(resume("text.txt", from_another), "is another run's");
  EXPECT_TRUE(content_of("run") == before);
  ASSERT_EQ(resume("text.txt", {"--out", "@run"}).exit_code, 0);
  EXPECT_FALSE(content_of("run") == before);
}

// They divide LibTorch's sums, so another machine's number of cores would change last digits.
TEST_F(OpeningTest, a_resumed_run_keeps_its_compute_threads_unless_others_are_asked_for) {
  const std::string many = std::to_string(std::thread::hardware_concurrency() + 1);  // no default
  const auto train_with = [this](const std::string& value, std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "sluice.compute_threads=" + value});
    ASSERT_EQ(train("run", more).exit_code, 0);
  };
  const auto threads = [this] { return json_in("run/config.json")["sluice"]["compute_threads"].dump(); };
  train_with(many, {"--steps", "1"});
  EXPECT_EQ(threads(), many);
  train_with("auto", {"--steps", "2", "--resume"});
  EXPECT_EQ(threads(), many);
  train_with("1", {"--steps", "3", "--resume"});
  EXPECT_EQ(threads(), "1");
}

TEST_F(OpeningTest, a_resume_with_what_makes_other_sums_says_so) {
  const auto resume = [this](std::vector<std::string> more) {
    more.insert(more.end(), {"--resume", "--steps", "2"});
    const Ended ended = train("run", more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.err;
  };
  ASSERT_EQ(train("run", {"--steps", "1", "--set", "sluice.loss_tile_tokens=7"}).exit_code, 0);
  const std::string words = ": the run goes on, but not bit for bit as it would have under ";
  EXPECT_THAT(resume({}), Not(HasSubstr(words)));
  EXPECT_THAT(resume({"--set", "sluice.host_memory=8MiB"}), Not(HasSubstr(words)));
  EXPECT_THAT(resume({"--set", "sluice.loss_tile_tokens=8", "--set", "sluice.compute_threads=2"}),
              AllOf(HasSubstr("\"sluice.loss_tile_tokens\" is 8" + words + "7"),
                    HasSubstr("\"sluice.compute_threads\" is 2" + words + "1")));
  EXPECT_THAT(resume({"--set", "train_micro_batch_size_per_gpu=2", "--set", "gradient_accumulation_steps=3"}),
              HasSubstr("\"train_micro_batch_size_per_gpu\" is 2" + words + "3"));
}

TEST_F(OpeningTest, a_file_of_a_trace_that_cannot_be_written_is_refused_before_a_store_is_made) {
  expect_refused(train("run", {"--trace", "@no-such-folder/trace.json"}), "no-such-folder");
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
  EXPECT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
}

TEST_F(OpeningTest, a_folder_with_somebody_elses_config_is_neither_trained_in_nor_lost) {
  fs::create_directory(file("model"));
  std::ofstream(file("model/config.json")) << R"({"model_type": "gpt2", "n_layer": 2})";
  const auto before = content_of("model");
  for (const char* how : {"--overwrite", "--resume", ""}) {
    std::vector<std::string> more;
    if (*how != '\0') more.emplace_back(how);
    expect_refused(train("model", more), "is not a run's");
  }
  EXPECT_TRUE(content_of("model") == before);
  expect_refused(sluice({"generate", "@model", "--prompt", "x", "--tokens", "1"}), "no run is there");
}

TEST_F(OpeningTest, a_run_whose_store_another_one_has_replaced_takes_nothing_of_it_and_does_not_remove_it) {
  const auto on_the_drive = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "sluice.nvme=[\"" + file("drive") + "\"]", "--steps", "2"});
    return more;
  };
  ASSERT_EQ(train("first", on_the_drive({})).exit_code, 0);
  ASSERT_EQ(train("second", on_the_drive({"--overwrite", "--seed", "1"})).exit_code, 0);
  const std::string words = "is another run's, begun there since";
  expect_refused(train("first", on_the_drive({"--resume"})), words);
  expect_refused(sluice({"generate", "@first", "--prompt", "x", "--tokens", "1"}), words);
  expect_refused(sluice({"checkpoint", "export", "@first", "@out"}), words);
  expect_refused(sluice({"checkpoint", "trim", "@first", "--yes"}), words);
  expect_refused(train("third", on_the_drive({"--resume"})), "has come to step 2 and is another run's");
  EXPECT_FALSE(fs::exists(file("third/config.json")));
  EXPECT_EQ(sluice({"generate", "@second", "--prompt", "x", "--tokens", "1"}).exit_code, 0);
  EXPECT_EQ(sluice({"checkpoint", "trim", "@second", "--yes"}).exit_code, 0);
  EXPECT_TRUE(fs::is_empty(file("drive")));
}

TEST_F(OpeningTest, a_run_that_lost_one_of_its_drives_to_another_one_takes_nothing_of_it_and_does_not_remove_it) {
  const auto on_drives = [&](const std::string& names, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--set", "sluice.nvme=[" + names + "]", "--steps", "2"});
    return more;
  };
  const std::string a = '"' + file("a") + '"', b = '"' + file("b") + '"';
  ASSERT_EQ(train("first", on_drives(a + "," + b)).exit_code, 0);
  ASSERT_EQ(train("second", on_drives(b, {"--overwrite"})).exit_code, 0);
  const auto before = content_of("b");
  const std::string words = " is another run's, begun there since";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"generate", "@first", "--prompt", "x", "--tokens", "1"}, {"checkpoint", "export", "@first", "@out"}})
    expect_refused(sluice(command), file("b") + words);
  expect_refused(train("first", on_drives(a + "," + b, {"--resume"})),
                 file("b") + words + " or put in the place of this run's drive, whose other drives are there");
  const auto trim = [&](const std::string& run) { return sluice({"checkpoint", "trim", "@" + run, "--yes"}); };
  expect_refused(trim("first"), file("b/sluice-0.swap") + words);
  EXPECT_THAT(trim("first").err, HasSubstr("what is left of this run's store: " + file("a/sluice-0.swap")));
  fs::remove(file("first/store.json"));
  expect_refused(trim("first"), "are parts of different stores");
  EXPECT_TRUE(fs::exists(file("a/sluice-0.swap")));
  EXPECT_TRUE(content_of("b") == before);
  EXPECT_EQ(train("second", {"--resume", "--set", "sluice.nvme=[" + b + "]", "--steps", "3"}).exit_code, 0);
}

// Its mount point may be there, and be another drive's.
TEST_F(OpeningTest, a_resume_without_one_of_the_drives_makes_and_measures_nothing) {
  const std::string nvme = "sluice.nvme=[\"" + file("d0") + "\",\"" + file("d1/x") + "\"]";
  ASSERT_EQ(train("run", {"--steps", "2", "--set", nvme}).exit_code, 0);
  fs::rename(file("d1"), file("away"));
  const auto before = content_of("run");
  const Ended refused = train("run", {"--steps", "3", "--set", nvme, "--resume"});
  expect_refused(refused, "drive 1 of the store is missing: there is no " + file("d1/x"));
  EXPECT_FALSE(fs::exists(file("d1")));
  EXPECT_TRUE(content_of("run") == before);
  expect_refused(train("run", {"--steps", "3", "--set", "sluice.nvme=[\"" + file("d0") + "\"]", "--resume"}),
                 "the run's store is in " + file("d0"));
  fs::rename(file("away"), file("d1"));
  EXPECT_EQ(train("run", {"--steps", "3", "--set", nvme, "--resume"}).exit_code, 0);
}

TEST_F(OpeningTest, folders_of_a_store_are_told_as_a_shell_takes_them) {
  const std::string nvme = "sluice.nvme=[\"" + file(R"(it's \"q\")") + "\"]";
  ASSERT_EQ(train("run", {"--steps", "2", "--set", nvme}).exit_code, 0);
  const Ended refused = train("run", {"--steps", "3", "--resume"});
  expect_refused(refused, "say so with --set ");
  const std::string argument = refused.err.substr(refused.err.rfind("--set ") + 6);
  EXPECT_EQ(run_process({"bash", "-c", "printf %s " + argument}).out, nvme);
}

// As written by versions before, where the store's file could not be opened for a moment.
TEST_F(OpeningTest, a_number_of_the_store_that_could_not_be_read_once_keeps_no_run_from_going_on) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  std::ofstream(file("run/store.json")) << R"({"number":0})";
  EXPECT_EQ(train("run", {"--steps", "3", "--resume"}).exit_code, 0);
  EXPECT_THAT(text_in("run/store.json"), Not(HasSubstr(":0}")));
}

TEST_F(OpeningTest, what_changes_nothing_keeps_no_run_from_going_on) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  const Ended more_ids = train("run", {"--steps", "3", "--resume", "--set", "data.vocab_size=300"});
  EXPECT_EQ(more_ids.exit_code, 0) << more_ids.err;
  expect_refused(train("run", {"--steps", "4", "--resume", "--set", "model.tiling={\"linear\":2}"}),
                 "the run there has \"model.tiling.linear\" 1 and not 2");
}

TEST_F(OpeningTest, an_export_into_a_runs_folder_is_refused) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const auto before = content_of("run");
  for (const char* out : {"@run", "@run/", "@run/../run"})
    expect_refused(sluice({"checkpoint", "export", "@run", out}), "the folder of a run");
  EXPECT_TRUE(content_of("run") == before);
}

TEST_F(OpeningTest, an_export_over_the_model_that_the_run_began_with_or_beside_parts_of_another_is_refused) {
  ASSERT_EQ(train("first", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@first", "@base"}).exit_code, 0);
  Json config = json_in("run.json");
  config["model"] = {{"path", file("base")}};
  std::ofstream(file("run.json")) << config;
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const auto before = content_of("base");
  expect_refused(sluice({"checkpoint", "export", "@run", "@base/../base"}), "began with the model there");
  EXPECT_TRUE(content_of("base") == before);
  fs::create_directory(file("sharded"));
  std::ofstream(file("sharded/model.safetensors.index.json")) << "{}";
  expect_refused(sluice({"checkpoint", "export", "@run", "@sharded"}), "a model in several files is there");
  EXPECT_EQ(sluice({"checkpoint", "export", "@run", "@other"}).exit_code, 0);
  EXPECT_EQ(sluice({"checkpoint", "export", "@run", "@other"}).exit_code, 0);  // once more, later
}

TEST_F(OpeningTest, an_export_over_files_that_are_no_models_is_refused) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  for (const char* name : {"project", "weights", "model"}) fs::create_directory(file(name));
  std::ofstream(file("project/config.json")) << R"({"name": "of a web page"})";
  std::ofstream(file("weights/model.safetensors")) << "of somebody else";
  std::ofstream(file("model/config.json")) << R"({"model_type": "gpt2"})";
  std::ofstream(file("model/model.safetensors")) << "of somebody else";
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@tuned"}).exit_code, 0);
  Json saved_since = json_in("tuned/config.json");
  saved_since["transformers_version"] = "5.0.0";
  std::ofstream(file("tuned/config.json")) << saved_since;
  for (const auto& [name, why] :
       {std::pair("project", "does not say that sluice has exported it"), std::pair("weights", "without a config.json"),
        std::pair("model", "does not say that sluice has exported it"),
        std::pair("tuned", "does not say that sluice has exported it")}) {
    const auto before = content_of(name);
    expect_refused(sluice({"checkpoint", "export", "@run", std::string("@") + name}), why);
    EXPECT_TRUE(content_of(name) == before);
  }
}

TEST_F(OpeningTest, seeds_that_no_configuration_can_hold_are_refused) {
  for (const char* seed : {"-1", "9223372036854775808", "010", "0x10", "1.5", ""}) {
    const Ended ended = train("run", {"--seed", seed});
    EXPECT_EQ(ended.exit_code, 2) << seed;
    EXPECT_THAT(ended.last_error_line(), HasSubstr("--seed")) << seed;
  }
  EXPECT_FALSE(fs::exists(file("run")));
  ASSERT_EQ(train("run", {"--seed", "9223372036854775807", "--steps", "1"}).exit_code, 0);
  EXPECT_EQ(train("run", {"--resume", "--steps", "2"}).exit_code, 0);
}

TEST_F(OpeningTest, a_run_that_began_with_a_hugging_face_folder_goes_on_without_it) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@out"}).exit_code, 0);
  const std::string model = R"(model={"path": ")" + file("out") + R"("})";
  ASSERT_EQ(train("more", {"--set", model, "--steps", "2"}).exit_code, 0);
  ASSERT_EQ(train("whole", {"--set", model}).exit_code, 0);
  fs::remove_all(file("out"));
  ASSERT_EQ(train("more", {"--set", model, "--steps", "4", "--resume"}).exit_code, 0);
  ASSERT_EQ(train("more", {"--set", model, "--resume"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("more")), numbers(metrics("whole")));
  expect_refused(train("more", {"--set", model, "--set", "model.n_layer=3", "--resume"}),
                 "\"model.n_layer\" 2 and not 3");
}

TEST_F(OpeningTest, a_run_that_goes_on_reads_no_other_weights_and_says_so) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@out"}).exit_code, 0);
  const std::string model = R"(model={"path": ")" + file("out") + R"("})";
  const Ended more = train("run", {"--set", model, "--steps", "2", "--resume"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, AllOf(HasSubstr("no weights are read from \"" + file("out")), HasSubstr("random at first")));
  EXPECT_FALSE(json_in("run/config.json")["model"].contains("path"));
  ASSERT_EQ(train("whole", {"--steps", "2"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("run")), numbers(metrics("whole")));
}

// Each is taken from the run's folder where the command does not give it, and decides on numbers.
TEST_F(OpeningTest, a_run_whose_configuration_was_changed_in_what_decides_on_numbers_is_refused_and_not_continued) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const std::string whole = content_of("run").at("config.json");
  const auto write = [this](const std::string& text) { std::ofstream(file("run/config.json")) << text; };
  const std::vector<std::string> generate = {"generate", "@run", "--prompt", "x", "--tokens", "1"};
  for (const char* key : {"/seed", "/sluice/compute_threads", "/sluice/loss_tile_tokens", "/model/n_head",
                          "/crc32c/model", "/crc32c/training"}) {
    Json config = Json::parse(whole);
    Json& value = config[Json::json_pointer(key)];
    value = value.is_string() ? Json("00000000") : Json(value.get<int64_t>() + 1);
    write(config.dump(2) + "\n");
    expect_refused(train("run", {"--resume", "--steps", "2"}), "has been damaged or changed");
    // Of the model's numbers, whoever uses the model; of its store, nobody.
    const bool of_model = std::string_view(key).find("model") != std::string_view::npos;
    EXPECT_EQ(sluice(generate).exit_code, of_model ? 2 : 0) << key;
    EXPECT_EQ(sluice({"checkpoint", "verify", "@run"}).exit_code, 0) << key;
  }
  Json config = Json::parse(whole);  // where the memory is, and how much, is nobody's number
  config["sluice"]["io_depth"] = 5;
  write(config.dump());
  EXPECT_EQ(train("run", {"--resume", "--steps", "2"}).exit_code, 0);
  config.erase("crc32c");  // of a run that was begun before there was one
  write(config.dump());
  EXPECT_EQ(train("run", {"--resume", "--steps", "3"}).exit_code, 0);
  EXPECT_TRUE(json_in("run/config.json").contains("crc32c"));
}

TEST_F(OpeningTest, sentencepiece_has_the_models_vocabulary_unless_told_otherwise) {
  const Ended ended = train("run", {"--set", "data.tokenizer=sentencepiece", "--steps", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("331 entries"));
}

TEST_F(OpeningTest, too_little_text_for_a_validation_loss_is_said) {
  const Ended ended = train("run", {"--set", "data.validation_fraction=0.004", "--steps", "1"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("data.validation_fraction 0.004"), HasSubstr("no validation loss")));
  EXPECT_THAT(ended.out, Not(HasSubstr("validation loss")));
}

TEST_F(OpeningTest, a_path_that_json_cannot_hold_is_refused_before_anything_is_made) {
  const std::string name = "text-\xff";
  fs::copy(file("text.txt"), file(name));
  expect_refused(sluice({"train", "@run.json", "--data", "@" + name, "--out", "@run"}), "not UTF-8");
  EXPECT_FALSE(fs::exists(file("run")));
  expect_refused(train("run-\xff"), "not UTF-8");
  EXPECT_FALSE(fs::exists(file("run-\xff")));
}

// Where drives are mounted, say, and this one is not.
TEST_F(OpeningTest, a_store_below_a_folder_that_is_not_there_is_made_and_the_folder_named) {
  fs::create_directory(file("mnt"));
  const auto begin = [this](const std::string& run, const std::string& store) {
    const Ended ended = train(run, {"--steps", "1", "--set", "sluice.nvme=[\"" + file(store) + "\"]"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(fs::exists(file(store + "/sluice-0.swap")));
    return ended.err;
  };
  EXPECT_THAT(begin("a", "mnt/drive/run/store"),
              HasSubstr(file("mnt/drive") + ": was not there, and is made for the store in " + file("mnt/drive/run")));
  EXPECT_THAT(begin("b", "mnt/drive/run/other"), Not(HasSubstr("was not there")));
  ASSERT_EQ(train("new/folder/run", {"--steps", "1"}).exit_code, 0);
}

// A report is not worth a run.
TEST_F(OpeningTest, what_would_help_that_cannot_be_kept_is_a_warning) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const std::string kept = file("run/would_help.json");
  if (mount(kept.c_str(), kept.c_str(), nullptr, MS_BIND, nullptr) != 0) GTEST_SKIP() << "nothing can be mounted here";
  const Ended ended = train("run", {"--steps", "2", "--resume"});
  EXPECT_EQ(umount2(kept.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the report will not say what would help"), HasSubstr(kept)));
}

TEST_F(OpeningTest, a_folder_of_the_store_that_is_given_twice_is_refused) {
  fs::create_directory(file("drive"));
  fs::create_symlink(file("drive"), file("link"));
  for (const std::string& other : {file("drive") + "/", file("drive/../drive"), file("link")}) {
    const Ended ended = train("run", {"--set", "sluice.nvme=[\"" + file("drive") + "\",\"" + other + "\"]"});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.last_error_line(), HasSubstr("are one folder")) << other;
  }
  EXPECT_TRUE(fs::is_empty(file("drive")));
}

}  // namespace
}  // namespace sluice
