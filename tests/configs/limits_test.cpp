// The last value that each key takes, and the first that it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/run_config.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTaken = "taken";

std::string answer_to(const std::string& text, const std::vector<std::string>& overrides) {
  return message_or<ConfigError>(kTaken, [&] { parse_config(text, "run.json", overrides); });
}
std::string answer_to(const std::vector<std::string>& overrides) {
  return answer_to(
      R"({"model": {"type": "gpt2"}, "data": {"sequence_length": 33}, "train_micro_batch_size_per_gpu": 1})",
      overrides);
}

struct Limit {
  std::string key, good, bad;
};

const Limit kLimits[] = {
    {"train_micro_batch_size_per_gpu", "1048576", "1048577"},
    {"train_micro_batch_size_per_gpu", "1", "0"},
    {"gradient_accumulation_steps", "65536", "65537"},
    {"gradient_accumulation_steps", "1", "0"},
    {"train_batch_size", "1", "0"},
    {"gradient_clipping", "3.4028234663852886e38", "3.4028236e38"},
    {"optimizer.params.lr", "0", "-1"},
    {"optimizer.params.betas", "[0, 0]", "[-0.1, 0]"},
    {"sluice.host_memory", "1152921504606846976", "1152921504606846977"},
    {"sluice.host_memory", "1048576TiB", "1048577TiB"},
    {"sluice.device_memory", "1", "0"},
    {"sluice.commit_interval", "1000000", "1000001"},
    {"sluice.io_block", "67108864", "67112960"},
    {"sluice.io_depth", "4096", "4097"},
    {"sluice.compute_threads", "1024", "1025"},
    {"sluice.compute_threads", "1", "0"},
    {"sluice.update_threads", "1024", "1025"},
    {"sluice.update_threads", "1", "0"},
    {"sluice.placement.weights", R"({"host": 0, "nvme": 1})", "{}"},
    {"sluice.nvme", R"(["/a"])", R"(["/a", ""])"},
    {"data.vocab_size", "1000000", "1000001"},
    {"data.validation_fraction", "0", "-0.1"},
    {"steps_per_print", "1", "0"},
    {"seed", "0", "-1"},
    {"endurance", R"({"terabytes_written": 600, "days": 9.99e11})", R"({"terabytes_written": 600, "days": 1e12})"},
    {"fp16.loss_scale", "1.2676506002282294e30", "1.2676506002282297e30"},
    {"fp16.loss_scale", "7.888609052210118e-31", "7.8886090522101e-31"},
    {"fp16.initial_scale_power", "100", "101"},
    {"fp16.initial_scale_power", "0", "-1"},
    {"fp16.min_loss_scale", "65536", "65536.5"},
    {"fp16.min_loss_scale", "7.888609052210118e-31", "0"},
};

TEST(Limits, the_last_value_is_taken_and_the_next_one_refused_by_its_key) {
  for (const auto& [key, good, bad] : kLimits) {
    EXPECT_EQ(answer_to({key + "=" + good}), kTaken) << key << " " << good;
    EXPECT_THAT(answer_to({key + "=" + bad}), StartsWith("run.json: \"" + key)) << bad;
  }
}

TEST(Limits, of_drives_are_sixteen_folders) {
  std::string folders;
  for (int i = 0; i < 16; ++i) folders += fmt::format("{}\"/drive{}\"", i == 0 ? "" : ",", i);
  EXPECT_EQ(answer_to({"sluice.nvme=[" + folders + "]"}), kTaken);
  EXPECT_THAT(answer_to({"sluice.nvme=[" + folders + ",\"/drive16\"]"}), HasSubstr("up to 16 drives"));
}

// Where a size follows from the others, nobody wrote what is too much.
TEST(Limits, of_a_batch_hold_for_the_sizes_that_follow_from_others_too) {
  const std::string file = R"({"model": {}, "data": {"sequence_length": 8}})";
  EXPECT_EQ(answer_to(file, {"train_batch_size=1048576"}), kTaken);
  EXPECT_THAT(answer_to(file, {"train_batch_size=1048577"}), HasSubstr("takes 1 micro-batches of 1048577: at most "));
  const std::string by_one = "train_micro_batch_size_per_gpu=1";
  EXPECT_EQ(answer_to(file, {by_one, "train_batch_size=65536"}), kTaken);
  EXPECT_THAT(answer_to(file, {by_one, "train_batch_size=65537"}),
              HasSubstr("takes 65537 micro-batches of 1: at most "));
}

TEST(Limits, of_a_schedules_rates_and_ratios_are_zero) {
  for (const std::string key : {"warmup_min_lr", "warmup_max_lr", "warmup_min_ratio", "cos_min_ratio"}) {
    const bool cosine = key.ends_with("ratio");
    const auto answer = [&](const std::string& value) {
      return answer_to({fmt::format(R"(scheduler={{"type": "{}", "params": {{"total_num_steps": 2000, "{}": {}}}}})",
                                    cosine ? "WarmupCosineLR" : "WarmupDecayLR", key, value)});
    };
    EXPECT_EQ(answer("0"), kTaken) << key;
    EXPECT_THAT(answer("-1"),
                StartsWith("run.json: \"scheduler.params." + key + "\" is -1; allowed: a number, 0 or more"));
  }
}

TEST(Limits, of_a_momentum_are_those_of_a_beta) {
  const auto answer = [](const std::string& momentum) {
    return answer_to({R"(optimizer={"type": "SGD", "params": {"momentum": )" + momentum + "}}"});
  };
  EXPECT_EQ(answer("0"), kTaken);
  EXPECT_THAT(answer("-0.1"), HasSubstr("\"optimizer.params.momentum\" is -0.1; allowed: a number from 0 to below 1"));
  EXPECT_THAT(answer("1"), HasSubstr("\"optimizer.params.momentum\" is 1; allowed: a number from 0 to below 1"));
}

TEST(Limits, of_a_group_are_at_least_one_pattern_and_a_rate_of_zero) {
  const auto answer = [](const std::string& group) { return answer_to({"optimizer.param_groups=[" + group + "]"}); };
  EXPECT_EQ(answer(R"({"params": ["*"], "lr_factor": 0})"), kTaken);
  EXPECT_THAT(answer(R"({"params": ["*"], "lr_factor": -1})"), HasSubstr("param_groups[0].lr_factor\" is -1; allowed"));
  EXPECT_THAT(answer(R"({"params": []})"), HasSubstr("param_groups[0].params\" is []; allowed"));
  EXPECT_THAT(answer(R"({"params": ["*.bias", ""]})"),
              HasSubstr("param_groups[0].params\" is [\"*.bias\",\"\"]; allowed"));
  EXPECT_THAT(answer(R"({"params": ["*"]}, 3)"), HasSubstr("\"optimizer.param_groups\" is "));
}

TEST(Limits, an_optimizer_has_no_parameters_of_another) {
  const auto answer = [](const std::string& type, const std::string& params) {
    return answer_to({R"(optimizer={"type": ")" + type + R"(", "params": )" + params + "}"});
  };
  for (const std::string type : {"Adagrad", "SGD"}) {
    EXPECT_THAT(answer(type, R"({"betas": [0.9, 0.99]})"), HasSubstr("and not with \"optimizer.type\" \"" + type));
  }
  for (const std::string type : {"Lion", "SGD"}) {
    EXPECT_THAT(answer(type, R"({"eps": 1e-8})"), HasSubstr("and not with \"optimizer.type\" \"" + type));
  }
  EXPECT_EQ(answer("Lion", R"({"betas": [0.9, 0.99]})"), kTaken);
  EXPECT_EQ(answer("Adagrad", R"({"eps": 1e-8})"), kTaken);
}

TEST(Limits, of_values_within_values_are_thirty_two) {
  const auto nested = [](int lists) {
    return answer_to(
        {"model.x=" + std::string(static_cast<size_t>(lists), '[') + std::string(static_cast<size_t>(lists), ']')});
  };
  EXPECT_EQ(nested(33), kTaken) << "the outermost lies in none";
  EXPECT_EQ(nested(34), "--set model.x: values within values, deeper than 32");
}

TEST(Limits, an_override_names_a_key_and_gives_each_of_its_own_once) {
  for (const std::string wrong : {".seed=1", "sluice.=1", "."}) {
    EXPECT_EQ(answer_to({wrong}), "--set " + wrong + ": not path.to.key=value");
  }
  EXPECT_EQ(answer_to({R"(sluice={"trace": "a", "trace": "b"})"}), "--set sluice: key \"trace\" is given twice");
}

}  // namespace
}  // namespace sluice
