// What may change when a run goes on, what is said of it, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "app/run_folder.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

RunConfig resolved(const std::vector<std::string>& overrides = {}) {
  constexpr const char* kText = R"({
    "model": {"type": "gpt2", "vocab_size": 331, "n_positions": 33, "n_embd": 72, "n_layer": 2, "n_head": 3},
    "data": {"path": "/text", "tokenizer": "byte", "vocab_size": 256, "sequence_length": 33, "shuffle": true}, "seed": 1,
    "train_batch_size": 6, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "sluice": {"compute_threads": 1, "loss_tile_tokens": 64}})";
  return parse_config(kText, "run.json", overrides);
}

std::string refusal_of(const std::vector<std::string>& overrides) {
  return message_or<ConfigError>("", [&] { check_same_run(resolved(), resolved(overrides), "run"); });
}

TEST(SameRun, may_have_other_paths_threads_budgets_and_rates) {
  for (const char* change :
       {"data.path=\"/other\"", "data.vocab_size=300", "sluice.compute_threads=2", "sluice.host_memory=\"1GiB\"",
        "optimizer.params.lr=0.5", "gradient_clipping=0.5", "model.bos_token_id=7",
        R"(model.tiling={"linear": 1, "embedding": 1})", "steps_per_print=3"}) {
    EXPECT_EQ(refusal_of({change}), "") << change;
  }
}

TEST(SameRun, may_not_have_what_decides_on_numbers) {
  for (const auto& [change, said] :
       {std::pair("seed=2", "\"seed\" 1 and not 2"),
        std::pair("data.shuffle=false", "\"data.shuffle\" true and not false"),
        std::pair("model.n_layer=3", "\"model.n_layer\" 2 and not 3"),
        std::pair(R"(model.tiling={"linear": 2, "embedding": 1})", "\"model.tiling.linear\" 1 and not 2"),
        std::pair("bf16.enabled=true", "\"bf16.enabled\" false and not true"),
        std::pair("fp16.enabled=true", "\"fp16.enabled\" false and not true")}) {
    EXPECT_THAT(refusal_of({change}),
                HasSubstr(std::string("run: the run there has ") + said + ": resume it as it was"));
  }
}

TEST(SameRun, with_another_division_of_its_sums_is_told_of_unless_the_earlier_one_is_not_known) {
  const auto said_of = [](const RunConfig& before, const RunConfig& now) {
    LogLines lines;
    warn_of_other_sums(before, now, lines.log());
    return lines.text();
  };
  RunConfig before = resolved(), now = resolved();
  now.batch.micro = 6;
  now.sluice.compute_threads = 2;
  now.sluice.loss_tile_tokens = 128;
  EXPECT_THAT(said_of(before, before), IsEmpty());
  EXPECT_THAT(
      said_of(before, now),
      AllOf(HasSubstr("\"train_micro_batch_size_per_gpu\" is 6: the run goes on, but not bit for bit as it would "
                      "have under 3\n"),
            HasSubstr("\"sluice.compute_threads\" is 2: "), HasSubstr("\"sluice.loss_tile_tokens\" is 128: ")));
  before.sluice.compute_threads = 0;
  before.sluice.loss_tile_tokens = 0;
  EXPECT_THAT(said_of(before, now), AllOf(HasSubstr("train_micro_batch_size_per_gpu"), Not(HasSubstr("sluice."))));
}

TEST(SameRun, with_another_rate_or_loss_scale_is_told_of) {
  const auto said_of = [](std::vector<std::string> changes) {
    LogLines lines;
    changes.push_back("fp16.enabled=true");
    say_what_changed(resolved({"fp16.enabled=true"}), resolved(changes), lines.log());
    return lines.text();
  };
  EXPECT_THAT(said_of({"sluice.compute_threads=2"}), IsEmpty());
  EXPECT_THAT(said_of({"optimizer.params.lr=0.5"}), HasSubstr("\"optimizer.params.lr\" 0.5 (was 0.001)"));
  EXPECT_THAT(said_of({"fp16.loss_scale=8"}), HasSubstr("\"fp16.loss_scale\" 8.0 (was "));
}

// Of what a run keeps, each reader looks at what decides on its own numbers; where the text lies decides on none.
TEST(RunFolder, refuses_a_changed_configuration_to_whom_the_change_matters) {
  using For = RunFolder::For;
  const TempFolder folder;
  const RunFolder run(folder.path());
  const auto refusal_after = [&](const std::string& from, const std::string& to, For what) {
    run.save(resolved());
    std::string text = read_whole(run.config_file());
    const size_t at = text.find(from);
    if (at == std::string::npos) return "without " + from;
    std::ofstream(run.config_file()) << text.replace(at, from.size(), to);
    return message_or<ConfigError>("", [&] { static_cast<void>(run.load(what)); });
  };
  for (const For what : {For::kTraining, For::kItsModel, For::kItsStore})
    EXPECT_EQ(refusal_after("\"/text\"", "\"/moved\"", what), "");
  EXPECT_THAT(refusal_after("\"seed\": 1", "\"seed\": 2", For::kTraining), HasSubstr("data, seed, batch"));
  EXPECT_EQ(refusal_after("\"seed\": 1", "\"seed\": 2", For::kItsModel), "");
  for (const For what : {For::kTraining, For::kItsModel})
    EXPECT_THAT(refusal_after("\"n_head\": 3", "\"n_head\": 6", what), HasSubstr("the model or its precision"));
  EXPECT_EQ(refusal_after("\"n_head\": 3", "\"n_head\": 6", For::kItsStore), "");
}

TEST(RunFolder, keeps_no_offers_of_an_earlier_start_where_none_are_known_now) {
  const TempFolder folder;
  const RunFolder run(folder.path());
  run.save_would_help("{}");
  EXPECT_EQ(read_whole(run.would_help_file()), "{}\n");
  run.save_would_help("");
  EXPECT_FALSE(std::filesystem::exists(run.would_help_file()));
  run.save_would_help("");  // none was there
}

TEST(RunFolder, knows_its_own_files_behind_links) {
  const TempFolder folder;
  const std::filesystem::path run = folder.path() / "run", links = folder.path() / "links";
  std::filesystem::create_directory(run);
  std::filesystem::create_directory(links);
  std::filesystem::create_symlink("../run/metrics.jsonl", links / "own");
  std::filesystem::create_symlink("../run/mine.json", links / "mine");
  EXPECT_TRUE(RunFolder(run).is_own(links / "own")) << "which is not there yet";
  EXPECT_FALSE(RunFolder(run).is_own(links / "mine"));
  EXPECT_TRUE(RunFolder(run).is_own(run / "tokens-0123.cache"));
  EXPECT_FALSE(RunFolder(run).is_own(links / "metrics.jsonl"));
}

}  // namespace
}  // namespace sluice
