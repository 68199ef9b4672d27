// Training by the real command: what it writes, and how a run goes on.

#include <set>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/app/matches.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using TrainTest = CommandTest;

TEST_F(TrainTest, writes_a_line_a_step_with_every_number_and_digests_at_the_end) {
  const Ended ended = train("run");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<Json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 7u);
  for (int i = 0; i < 6; ++i) {
    const Json& line = lines[i];
    std::set<std::string> keys;
    for (const auto& item : line.items()) keys.insert(item.key());
    EXPECT_THAT(keys, testing::UnorderedElementsAre("step", "since_start", "loss", "grad_norm", "lr", "loss_scale",
                                                    "skipped", "speculated", "tokens", "samples_per_s", "tokens_per_s",
                                                    "step_ms", "lanes", "drive_ms", "memory", "predicted_step_ms"));
    EXPECT_EQ(line["since_start"], i + 1);
    EXPECT_GT(line["drive_ms"], 0);
    EXPECT_EQ(line["step"], i + 1);
    EXPECT_EQ(line["tokens"], (i + 1) * 6 * 33);
    EXPECT_EQ(line["lr"], 1e-3);
    const double seconds = line["step_ms"].get<double>() / 1e3;
    EXPECT_NEAR(line["samples_per_s"].get<double>() * seconds, 6, 1e-6);
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * seconds, 6 * 33, 1e-6);
    for (const char* lane : {"read", "write", "upload", "download", "compute", "update"}) {
      EXPECT_TRUE(line["lanes"][lane].contains("ms") && line["lanes"][lane].contains("bytes")) << lane;
    }
    for (const char* tier : {"device", "host"}) {
      EXPECT_GT(line["memory"][tier]["peak_bytes"], 0);
      EXPECT_LE(line["memory"][tier]["peak_bytes"], line["memory"][tier]["budget_bytes"]) << tier;
    }
    EXPECT_GT(line["memory"]["rss_bytes"], 0);
    EXPECT_TRUE(line["memory"].contains("runtime_bytes"));
  }
  EXPECT_LT(lines[5]["loss"], lines[0]["loss"]);
  EXPECT_EQ(lines[6]["final"], true);
  EXPECT_EQ(lines[6]["weights_crc32c"].get<std::string>().size(), 8u);
  EXPECT_EQ(lines[6]["state_crc32c"].get<std::string>().size(), 8u);
}

TEST_F(TrainTest, shows_the_placement_first_and_the_summary_last) {
  const Ended ended = train("run", {"--sample", "line 7", "--sample-tokens", "5"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const size_t table = ended.out.find("disk needed"), loss = ended.out.find("loss              first");
  EXPECT_LT(table, loss);
  ASSERT_NE(loss, std::string::npos);
  EXPECT_THAT(ended.out, testing::HasSubstr("validation loss"));
  EXPECT_THAT(ended.out, testing::HasSubstr("unigram cross-entropy of the same"));
  EXPECT_THAT(ended.out, testing::HasSubstr("A continuation of \"line 7\":\nline 7"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("workspace peak    [1-9][0-9.]* [KM]iB of [1-9]"));
  EXPECT_THAT(ended.err, testing::HasSubstr("step 6/6"));
}

TEST_F(TrainTest, a_run_that_was_stopped_and_resumed_has_the_numbers_of_one_that_was_not) {
  ASSERT_EQ(train("whole", {"--steps", "7"}).exit_code, 0);
  ASSERT_EQ(train("parts", {"--steps", "3"}).exit_code, 0);
  const Ended ended = train("parts", {"--steps", "7", "--resume"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
}

TEST_F(TrainTest, state_on_the_device_has_the_numbers_of_state_elsewhere_and_goes_on_there) {
  leave_homes_to_the_planner();
  const auto state = [](const std::string& homes, std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "sluice.device_memory=64MiB", "--set", "sluice.host_memory=16MiB", "--set",
                             "sluice.placement.state=" + homes});
    return more;
  };
  ASSERT_EQ(train("whole", state("nvme", {"--steps", "7"})).exit_code, 0);
  const Ended first = train("parts", state("device", {"--steps", "3", "--set", "sluice.commit_interval=10"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  for (const char* lane : {"read", "write", "upload", "download"})
    EXPECT_EQ(metrics("parts")[2]["lanes"][lane]["bytes"], 0) << lane;
  const Ended second =
      train("parts", state(R"({"device": 0.3, "host": 0.3, "nvme": 0.4})", {"--steps", "5", "--resume"}));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  ASSERT_EQ(train("parts", state("host", {"--steps", "7", "--resume"})).exit_code, 0);
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
}

TEST_F(TrainTest, groups_of_parameters_train_otherwise_and_may_change_when_the_run_goes_on) {
  const std::vector<std::string> none,
      plain = {"--set", R"(optimizer.params.weight_decay=0.5)", "--set",
               R"(optimizer.param_groups=[{"params": ["*.bias", "*.ln_*.weight"], "weight_decay": 0}])"};
  ASSERT_EQ(train("none", {"--set", R"(optimizer.params.weight_decay=0.5)"}).exit_code, 0);
  const Ended ended = train("plain", plain);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("optimizer.param_groups[0]: 18 parameters, weight_decay 0, 1 times"));
  EXPECT_NE(metrics("plain").back()["weights_crc32c"], metrics("none").back()["weights_crc32c"]);
  const Ended resumed = train("plain", {"--resume", "--steps", "8"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(metrics("plain").size(), 9u);
  const Ended refused = train("other", {"--set", R"(optimizer.param_groups=[{"params": ["*.wieght"]}])"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, testing::HasSubstr("\"*.wieght\" matches no parameter of the model; the nearest name is"));
}

TEST_F(TrainTest, fp16_skips_steps_and_lowers_its_scale_and_a_resumed_run_goes_on_with_it) {
  const auto fp16 = [&](const std::string& out, std::vector<std::string> more) {
    const std::string keys = R"(fp16={"enabled": true, "initial_scale_power": 30, "loss_scale_window": 3})";
    more.insert(more.end(), {"--set", "bf16.enabled=false", "--set", keys});
    return train(out, more);
  };
  const Ended whole = fp16("whole", {"--steps", "20"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  ASSERT_EQ(fp16("parts", {"--steps", "4"}).exit_code, 0);
  ASSERT_EQ(fp16("parts", {"--steps", "20", "--resume"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
  const std::vector<Json> lines = metrics("whole"), again = metrics("parts");
  EXPECT_EQ(lines[0]["loss_scale"], 1073741824.0);
  EXPECT_EQ(lines[0]["skipped"], true);
  EXPECT_EQ(lines[1]["loss_scale"], 1073741824.0);  // a hysteresis of 2
  EXPECT_EQ(lines[2]["loss_scale"], 536870912.0);
  // It finds its scale, and from there on is raised and lowered by turns.
  const auto is_trained = [](const Json& line) { return line["skipped"] == false; };
  EXPECT_GE(std::count_if(lines.begin(), lines.begin() + 20, is_trained), 3);
  EXPECT_LT(lines[19]["loss"], lines[0]["loss"]);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(again[i]["loss_scale"], lines[i]["loss_scale"]) << i;
  EXPECT_THAT(whole.err, testing::HasSubstr("SKIPPED"));
}

TEST_F(TrainTest, a_finished_run_that_is_resumed_writes_its_final_line_again) {
  ASSERT_EQ(train("run").exit_code, 0);
  const std::string before = numbers(metrics("run"));
  const Ended ended = train("run", {"--resume"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::HasSubstr("has 6 steps already, and 6 are asked for"));
  EXPECT_EQ(numbers(metrics("run")), before);
}

TEST_F(TrainTest, a_resumed_run_says_what_of_the_optimizer_and_the_clip_has_changed) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const auto resumed = [&](const std::string& steps, std::vector<std::string> more) {
    more.insert(more.begin(), {"--resume", "--steps", steps});
    const Ended ended = train("run", more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(resumed("2", {}), testing::Not(testing::HasSubstr("changed since")));
  EXPECT_THAT(resumed("3", {"--set", "optimizer.params.lr=0.5", "--set", "gradient_clipping=0"}),
              testing::HasSubstr("changed since the run was last begun: \"gradient_clipping\" 0.0 (was 1.0), "
                                 "\"optimizer.params.lr\" 0.5 (was 0.001)"));
  EXPECT_THAT(resumed("4", {}), testing::HasSubstr("\"optimizer.params.lr\" 0.001 (was 0.5)"));
  EXPECT_THAT(resumed("5", {"--set", "optimizer.params.betas=[0.5,0.6]"}),
              testing::HasSubstr("\"optimizer.params.betas\" [0.5,0.6] (was [0.9,0.999])"));
}

TEST_F(TrainTest, the_validation_loss_stays_in_the_runs_last_line) {
  const Ended ended = train("run");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto printed = matches_of("validation loss +([0-9.]+), .* same ([0-9]+) tokens ([0-9.]+):", ended.out);
  ASSERT_EQ(printed.size(), 1u) << ended.out;
  const Json line = metrics("run").back();
  EXPECT_NEAR(line["validation_loss"].get<double>(), std::stod(printed[0][1]), 5e-5);
  EXPECT_EQ(line["validation_tokens"].dump(), printed[0][2]);
  EXPECT_THAT(ended.err, testing::ContainsRegex("validating on " + std::string(printed[0][2]) +
                                                " tokens; step [0-9]+ is committed"));
  EXPECT_NEAR(line["unigram_nats"].get<double>(), std::stod(printed[0][3]), 5e-5);
  EXPECT_FALSE(train("none", {"--set", "data.validation_fraction=0"}).out.find("validation") != std::string::npos);
  EXPECT_FALSE(metrics("none").back().contains("validation_loss"));
}

TEST_F(TrainTest, a_resumed_run_may_have_other_budgets_and_homes) {
  ASSERT_EQ(train("whole").exit_code, 0);
  ASSERT_EQ(train("parts", {"--steps", "2"}).exit_code, 0);
  const Ended ended = train("parts", {"--resume", "--set", "sluice.host_memory=8MiB", "--set",
                                      "sluice.placement.state=host", "--set", "sluice.io_backend=threads"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
}

TEST_F(TrainTest, resuming_needs_neither_the_data_nor_the_seed_again) {
  ASSERT_EQ(train("whole", {"--seed", "5"}).exit_code, 0);
  ASSERT_EQ(train("parts", {"--seed", "5", "--steps", "2"}).exit_code, 0);
  fs::remove(file("text.txt"));
  const Ended ended = sluice({"train", "@run.json", "--out", "@parts", "--steps", "6", "--resume"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(numbers(metrics("parts")), numbers(metrics("whole")));
}

TEST_F(TrainTest, the_resolved_configuration_trains_the_same_run) {
  ASSERT_EQ(train("run").exit_code, 0);
  const Ended ended = sluice({"train", "@run/config.json", "--out", "@again", "--steps", "6"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(numbers(metrics("again")), numbers(metrics("run")));
}

TEST_F(TrainTest, another_seed_gives_another_run) {
  ASSERT_EQ(train("one", {"--seed", "1", "--steps", "2"}).exit_code, 0);
  ASSERT_EQ(train("two", {"--seed", "2", "--steps", "2"}).exit_code, 0);
  EXPECT_NE(metrics("one")[0]["loss"], metrics("two")[0]["loss"]);
}

TEST_F(TrainTest, a_trace_that_could_not_be_written_whole_is_an_error_of_a_finished_run) {
  const Ended ended = train("run", {"--trace", "/dev/full"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.last_error_line(), testing::AllOf(testing::HasSubstr("/dev/full"), testing::HasSubstr("trace")));
  EXPECT_EQ(metrics("run").back()["final"], true);
}

TEST_F(TrainTest, without_steps_it_trains_one_epoch) {
  const Ended ended = sluice({"train", "@run.json", "--data", "@text.txt", "--out", "@run", "--set",
                              "train_micro_batch_size_per_gpu=24", "--set", "sluice.device_memory=8MiB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  // 33 tokens a sample, 48 samples a step, nine tenths of the text's bytes and its end.
  const int64_t tokens = static_cast<int64_t>(fs::file_size(file("text.txt"))) + 1;
  const int64_t samples = (tokens - tokens / 10) / 33;
  EXPECT_NEAR(static_cast<double>(metrics("run").size() - 1), static_cast<double>(samples / 48), 1);
  EXPECT_THAT(ended.err, testing::HasSubstr("; " + std::to_string(metrics("run").size() - 1) + " steps an epoch"));
}

TEST_F(TrainTest, the_store_goes_to_the_named_folder_and_later_commands_find_it) {
  const std::string set = "sluice.nvme=[\"" + file("drive") + "\"]";
  ASSERT_EQ(train("run", {"--set", set}).exit_code, 0);
  EXPECT_TRUE(fs::exists(file("drive/sluice-0.swap")));
  EXPECT_FALSE(fs::exists(file("run/sluice-0.swap")));
  EXPECT_EQ(sluice({"generate", "@run", "--prompt", "line", "--tokens", "2"}).exit_code, 0);
  const Ended elsewhere = train("run", {"--resume"});
  EXPECT_EQ(elsewhere.exit_code, 2);
  EXPECT_THAT(elsewhere.last_error_line(), testing::HasSubstr(file("drive")));
}

TEST_F(TrainTest, deepspeeds_keys_name_the_drive_and_the_log_says_which_are_not_needed) {
  const std::string offload = R"({"device": "nvme", "nvme_path": ")" + file("drive") + R"(", "buffer_count": 4})";
  const Ended ended = train(
      "run", {"--set", "zero_optimization.offload_optimizer=" + offload, "--set", "zero_optimization.overlap_comm=true",
              "--set", "aio.queue_depth=8", "--set", "model.torch_dtype=\"float32\""});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(file("drive/sluice-0.swap")));
  EXPECT_THAT(ended.err, testing::HasSubstr("not needed: \"aio.queue_depth\": "));
  EXPECT_THAT(ended.err, testing::HasSubstr("not needed: \"model.torch_dtype\": Hugging Face's, without effect"));
  EXPECT_THAT(ended.err, testing::HasSubstr("offload_optimizer.buffer_count\": sluice.device_memory"));
  ASSERT_EQ(train("plain").exit_code, 0);
  EXPECT_EQ(numbers(metrics("run")), numbers(metrics("plain")));
  const Ended exported = sluice({"checkpoint", "export", "@run", "@out"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
}

TEST_F(TrainTest, the_log_has_the_first_step_the_last_and_those_that_were_asked_for) {
  const Ended ended = train("run", {"--steps", "5", "--set", "steps_per_print=2"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::string shown;
  for (const auto& line : matches_of("\\] step ([0-9]+)/5 ", ended.err)) shown += line[1];
  EXPECT_EQ(shown, "1245");
}

// A process that goes on with a run counts its own steps from its own beginning.
TEST_F(TrainTest, a_resumed_run_logs_and_keeps_its_own_first_step_and_averages_over_its_own) {
  ASSERT_EQ(train("run", {"--steps", "5"}).exit_code, 0);
  fs::remove(file("run/timeline.json"));
  const Ended ended = train("run", {"--steps", "9", "--resume", "--set", "steps_per_print=4"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  std::string shown;
  for (const auto& line : matches_of("\\] step ([0-9]+)/9 .*samples/s ([0-9.]+) \\(now ([0-9.]+)\\)", ended.err)) {
    if (shown.empty()) {
      EXPECT_LE(std::stod(line[2]), std::stod(line[3])) << "of its one step";
    }
    shown += line[1];
  }
  EXPECT_EQ(shown, "689");
  EXPECT_THAT(ended.err, testing::HasSubstr("resuming after step 5\n"));
  EXPECT_EQ(metrics("run")[5]["since_start"], 1);
  EXPECT_TRUE(fs::exists(file("run/timeline.json"))) << "of its first steps";
}

TEST_F(TrainTest, the_folder_has_what_was_derived_as_the_plan_says_it) {
  const Json plan = json_of(sluice({"plan", "@run.json", "--json", "--machine", "@machine.json"}).out);
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  const Json kept = json_in("run/config.json")["sluice"], help = json_in("run/would_help.json");
  EXPECT_EQ(kept["chunk_elements"], plan["chunk_elements"]);
  EXPECT_EQ(kept["commit_interval"], plan["commit_interval"]);
  EXPECT_NEAR(help["tokens_per_s"].get<double>() * help["step_ms"].get<double>() / 1e3, 6 * 33, 1e-6);
}

TEST_F(TrainTest, the_summary_tells_what_steps_wrote_and_not_the_making_of_the_store) {
  const std::vector<std::string> all = {"--set", kFixedHomes,
                                        "--set", "sluice.commit_interval=1",
                                        "--set", "sluice.update=deferred",
                                        "--set", "sluice.chunk_elements=4096"};
  std::vector<std::string> plan = {"plan", "@run.json", "--json"};
  plan.insert(plan.end(), all.begin(), all.end());
  const int64_t planned = json_of(sluice(plan).out)["endurance"]["bytes_per_step"];
  std::vector<std::string> one = all;
  one.insert(one.end(), {"--steps", "1"});
  const Ended ended = train("run", one);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("nvme writes       " + format_bytes(planned) + " a step"));
}

TEST_F(TrainTest, requests_of_a_size_that_was_asked_for_keep_it) {
  const Ended ended = train("run", {"--steps", "1", "--set", "sluice.io_block=64KiB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::ContainsRegex("the best of [12] settings tried: .*blocks of 64.0 KiB"));
}

TEST_F(TrainTest, the_validation_loss_is_of_all_of_its_samples_however_many_a_step_takes) {
  ASSERT_EQ(train("run", {"--set", "optimizer.params.lr=0.01"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@start"}).exit_code, 0);
  const auto validation = [&](const std::string& micro_batches) {
    const Ended ended = train("of " + micro_batches,
                              {"--steps", "1", "--set", R"(model={"path": ")" + file("start") + R"("})", "--set",
                               "optimizer.params.lr=0", "--set", "sluice.host_memory=8MiB", "--set",
                               "sluice.device_memory=8MiB", "--set", "gradient_accumulation_steps=" + micro_batches});
    const auto found = matches_of("validation loss +([0-9.]+), .* same ([0-9]+) tokens", ended.out);
    EXPECT_EQ(found.size(), 1u) << ended.err;
    return found.empty() ? std::pair<double, std::string>() : std::pair(std::stod(found[0][1]), found[0][2]);
  };
  const auto few = validation("2"), all = validation("20");
  EXPECT_EQ(few.second, all.second);
  EXPECT_NEAR(few.first, all.first, 2e-4);  // sums in another order
}

TEST_F(TrainTest, moments_in_bf16_are_rounded_by_the_seed_of_the_run) {
  ASSERT_EQ(train("run", {"--steps", "1"}).exit_code, 0);
  ASSERT_EQ(sluice({"checkpoint", "export", "@run", "@start"}).exit_code, 0);
  const auto state = [&](const std::string& out, const std::string& seed) {
    EXPECT_EQ(train(out, {"--steps", "2", "--seed", seed, "--set", R"(model={"path": ")" + file("start") + R"("})",
                          "--set", "data.shuffle=false", "--set", "sluice.state_dtype=bf16"})
                  .exit_code,
              0);
    return metrics(out).back()["state_crc32c"];
  };
  const auto first = state("a", "1");
  EXPECT_EQ(state("b", "1"), first);
  EXPECT_NE(state("c", "2"), first);
}

}  // namespace
}  // namespace sluice
