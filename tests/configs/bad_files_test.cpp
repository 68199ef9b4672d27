// Configurations that are wrong, and the exact line that each one gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/run_config.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return message_or<ConfigError>("no error", [&] { parse_config(text, "run.json", overrides); });
}

const std::string kGood =
    R"({"model": {"type": "gpt2"}, "data": {"sequence_length": 33}, "train_micro_batch_size_per_gpu": 3})";

struct Case {
  std::string name;
  std::string override_text;  // on a good file
  std::string message;
};

class BadValue : public testing::TestWithParam<Case> {};

TEST_P(BadValue, is_refused_by_key_value_and_what_is_allowed) {
  EXPECT_EQ(error_of(kGood, {GetParam().override_text}), GetParam().message);
}

const Case kBadValues[] = {
    {"negative_clip", "gradient_clipping=-1",
     R"(run.json: "gradient_clipping" is -1; allowed: a number, 0 or more (0: none))"},
    {"word_for_a_number", "optimizer.params.lr=fast",
     R"(run.json: "optimizer.params.lr" is "fast"; allowed: a number, 0 or more)"},
    {"unknown_optimizer", "optimizer.type=Muon",
     R"(run.json: "optimizer.type" is "Muon"; allowed: "AdamW", "Adam", "Adagrad", "Lion" or "SGD")"},
    {"momentum_of_adam", "optimizer.params.momentum=0.9",
     R"(run.json: "optimizer.params.momentum" is 0.9; allowed: a number from 0 to below 1, for SGD)"
     R"(, and not with "optimizer.type" "AdamW")"},
    {"three_betas", "optimizer.params.betas=[0.9,0.95,0.99]",
     R"(run.json: "optimizer.params.betas" is [0.9,0.95,0.99]; allowed: a list of two numbers from 0 to below 1)"},
    {"beta_of_one", "optimizer.params.betas=[0.9,1]",
     R"(run.json: "optimizer.params.betas" is [0.9,1]; allowed: a list of two numbers from 0 to below 1)"},
    {"epsilon_of_zero", "optimizer.params.eps=0",
     R"(run.json: "optimizer.params.eps" is 0; allowed: a number above 0, 1.2e-38 at the least as in fp32)"},
    {"epsilon_that_fp32_has_not", "optimizer.params.eps=1e-50",
     R"(run.json: "optimizer.params.eps" is 1e-50; allowed: a number above 0, 1.2e-38 at the least as in fp32)"},
    {"threads_beyond_reason", "sluice.update_threads=100000",
     R"(run.json: "sluice.update_threads" is 100000; allowed: an integer from 1 to 1024, or "auto")"},
    {"accumulation_beyond_reason", "gradient_accumulation_steps=4294967297",
     R"(run.json: "gradient_accumulation_steps" is 4294967297; allowed: an integer from 1 to 65536, or "auto")"},
    {"micro_batch_beyond_reason", "train_micro_batch_size_per_gpu=2000000",
     R"(run.json: "train_micro_batch_size_per_gpu" is 2000000; allowed: an integer from 1 to 1048576, or "auto")"},
    {"groups_without_a_list", "optimizer.param_groups={}",
     R"(run.json: "optimizer.param_groups" is {}; allowed: a list of objects, as [{"params": ["*.bias", )"
     R"("*.ln_*.weight"], "weight_decay": 0}])"},
    {"a_group_of_nothing", R"(optimizer.param_groups=[{"weight_decay":0}])",
     R"(run.json: "optimizer.param_groups[0].params" is missing; allowed: a list of patterns of parameters' names, )"
     R"(as ["*.bias"])"},
    {"a_group_by_one_word", R"(optimizer.param_groups=[{"params":"*.bias"}])",
     R"(run.json: "optimizer.param_groups[0].params" is "*.bias"; allowed: a list of patterns of parameters' names, )"
     R"(as ["*.bias"])"},
    {"a_groups_negative_decay", R"(optimizer.param_groups=[{"params":["*"]},{"params":["*"],"weight_decay":-1}])",
     R"(run.json: "optimizer.param_groups[1].weight_decay" is -1; allowed: a number, 0 or more)"},
    {"a_groups_momentum_of_adam", R"(optimizer.param_groups=[{"params":["*"],"momentum":0.5}])",
     R"(run.json: "optimizer.param_groups[0].momentum" is 0.5; allowed: a number from 0 to below 1, for SGD)"
     R"(, and not with "optimizer.type" "AdamW")"},
    {"stage_four", "zero_optimization.stage=4", R"(run.json: "zero_optimization.stage" is 4; allowed: 0, 1, 2 or 3)"},
    {"half_a_step", "steps_per_print=0.5", R"(run.json: "steps_per_print" is 0.5; allowed: a positive integer)"},
    {"flag_as_a_number", "bf16.enabled=1",
     R"(run.json: "bf16.enabled" is 1; allowed: true or false (neither this nor fp16: fp32))"},
    {"negative_loss_scale", "fp16.loss_scale=-1",
     R"(run.json: "fp16.loss_scale" is -1; allowed: 0 (dynamic), or a number from 2^-100 to 2^100)"},
    {"loss_scale_beyond_numbers", "fp16.loss_scale=1e31",
     R"(run.json: "fp16.loss_scale" is 1e+31; allowed: 0 (dynamic), or a number from 2^-100 to 2^100)"},
    {"vanishing_loss_scale", "fp16.loss_scale=1e-31",
     R"(run.json: "fp16.loss_scale" is 1e-31; allowed: 0 (dynamic), or a number from 2^-100 to 2^100)"},
    {"scale_instead_of_its_power", "fp16.initial_scale_power=65536",
     R"(run.json: "fp16.initial_scale_power" is 65536; allowed: an integer from 0 to 100: the first dynamic scale is )"
     R"(2 to this power)"},
    {"no_window", "fp16.loss_scale_window=0",
     R"(run.json: "fp16.loss_scale_window" is 0; allowed: a positive integer)"},
    {"no_hysteresis", "fp16.hysteresis=0", R"(run.json: "fp16.hysteresis" is 0; allowed: a positive integer)"},
    {"least_above_the_first", "fp16.min_loss_scale=65537",
     R"(run.json: "fp16.min_loss_scale" is 65537; allowed: a number from 2^-100 to the first dynamic scale, 65536)"},
    {"section_as_a_value", "bf16=true", R"(run.json: "bf16" is true; allowed: an object, as {"enabled": true})"},
    {"model_as_a_name", "model=gpt2",
     R"(run.json: "model" is "gpt2"; allowed: an object, as {"type": "gpt2", ...} or {"path": "FOLDER"})"},
    {"bytes_without_a_unit_we_know", "sluice.device_memory=64 megs",
     R"(run.json: "sluice.device_memory" is "64 megs"; allowed: bytes, as "12GiB" or "12GB", or a positive )"
     R"(integer up to 2^60)"},
    {"no_bytes", "sluice.host_memory=0",
     R"(run.json: "sluice.host_memory" is 0; allowed: bytes, as "12GiB" or "12GB", or a positive )"
     R"(integer up to 2^60)"},
    {"negative_bytes", "sluice.host_memory=-4096",
     R"(run.json: "sluice.host_memory" is -4096; allowed: bytes, as "12GiB" or "12GB", or a positive )"
     R"(integer up to 2^60)"},
    {"folder_without_a_list", "sluice.nvme=/local_nvme",
     R"(run.json: "sluice.nvme" is "/local_nvme"; allowed: a list of folders, one for each of up to 16 drives, as )"
     R"(["/local_nvme"])"},
    {"a_folder_twice", R"(sluice.nvme=["/a","/b","/a"])",
     R"(run.json: "sluice.nvme" is ["/a","/b","/a"]; allowed: a list of folders, one for each of up to 16 drives, as )"
     R"(["/local_nvme"] ("/a" is there twice))"},
    {"tiny_chunks", "sluice.chunk_elements=127",
     R"(run.json: "sluice.chunk_elements" is 127; allowed: an integer, 128 or more, or "auto")"},
    {"never_commit", "sluice.commit_interval=0",
     R"(run.json: "sluice.commit_interval" is 0; allowed: an integer from 1 to 1000000, or "auto")"},
    {"commits_beyond_an_int", "sluice.commit_interval=4294967297",
     R"(run.json: "sluice.commit_interval" is 4294967297; allowed: an integer from 1 to 1000000, or "auto")"},
    {"moments_in_fp16", "sluice.state_dtype=fp16",
     R"(run.json: "sluice.state_dtype" is "fp16"; allowed: "fp32" or "bf16")"},
    {"no_recompute", "sluice.recompute=never",
     R"(run.json: "sluice.recompute" is "never"; allowed: "auto" or "always")"},
    {"unknown_device", "sluice.device=tpu", R"(run.json: "sluice.device" is "tpu"; allowed: "auto", "cuda" or "cpu")"},
    {"unknown_backend", "sluice.io_backend=libaio",
     R"(run.json: "sluice.io_backend" is "libaio"; allowed: "auto", "uring" or "threads")"},
    {"odd_block", "sluice.io_block=5000",
     R"(run.json: "sluice.io_block" is 5000; allowed: bytes in multiples of 4096 up to 64MiB, as "1MiB")"},
    {"huge_block", "sluice.io_block=67112960",
     R"(run.json: "sluice.io_block" is 67112960; allowed: bytes in multiples of 4096 up to 64MiB, as "1MiB")"},
    {"no_depth", "sluice.io_depth=0", R"(run.json: "sluice.io_depth" is 0; allowed: an integer from 1 to 4096)"},
    {"unknown_home", "sluice.placement.weights=disk",
     R"(run.json: "sluice.placement.weights" is "disk"; allowed: a home ("auto", "host", ...) or shares as )"
     R"({"host": 0.5, "nvme": 0.5}, with the homes auto, device, host, nvme, host+device and nvme+device)"},
    {"home_that_state_cannot_have", "sluice.placement.state=nvme+device",
     R"(run.json: sluice.placement.state: "nvme+device" is not possible; allowed: auto | device | host | nvme)"},
    {"auto_beside_a_home", R"(sluice.placement.state={"auto":0.5,"host":0.5})",
     R"(run.json: sluice.placement.state: "auto" stands alone: give the share of each home, or "auto")"},
    {"shares_that_leave_a_gap", R"(sluice.placement.weights={"host":0.5,"nvme":0.25})",
     "run.json: sluice.placement.weights: the shares sum to 0.75, not to 1"},
    {"unknown_update", "sluice.update=early",
     R"(run.json: "sluice.update" is "early"; allowed: "auto", "deferred", "speculative" or "replay")"},
    {"zero_tokens_a_tile", "sluice.loss_tile_tokens=0",
     R"(run.json: "sluice.loss_tile_tokens" is 0; allowed: a positive integer or "auto")"},
    {"trace_without_a_name", "sluice.trace=true",
     R"(run.json: "sluice.trace" is true; allowed: the path of a file to write)"},
    {"unknown_tokenizer", "data.tokenizer=bpe",
     R"(run.json: "data.tokenizer" is "bpe"; allowed: "byte", "sentencepiece" or "ids")"},
    {"all_for_validation", "data.validation_fraction=1",
     R"(run.json: "data.validation_fraction" is 1; allowed: a number from 0 to below 1)"},
    {"no_sequence", "data.sequence_length=0", R"(run.json: "data.sequence_length" is 0; allowed: a positive integer)"},
    {"small_vocabulary", "data.vocab_size=100",
     R"(run.json: "data.vocab_size" is 100; allowed: an integer, 300 to 1000000 for sentencepiece, 256 or more for byte, )"
     R"(1 or more for ids)"},
    {"tensorboard_in_words", "tensorboard={\"enabled\": \"yes\"}",
     R"(run.json: "tensorboard.enabled" is "yes"; allowed: true or false)"},
    {"tensorboard_in_no_folder", "tensorboard={\"enabled\": true, \"output_path\": 3}",
     R"(run.json: "tensorboard.output_path" is 3; allowed: a folder)"},
    {"a_drive_without_a_name", R"(zero_optimization.offload_param={"device":"nvme","nvme_path":""})",
     R"(run.json: "zero_optimization.offload_param.nvme_path" is ""; allowed: a folder)"},
    {"endurance_without_days", "endurance.terabytes_written=600",
     R"(run.json: "endurance.days" is missing; allowed: a number above 0 and below 1e12: how long the drives are to last)"},
    {"endurance_without_a_rating", "endurance.days=365",
     R"(run.json: "endurance.terabytes_written" is missing; allowed: a number above 0 and below 1e12: what one drive is rated for)"},
    {"endurance_of_nothing", "endurance={\"terabytes_written\": 0, \"days\": 365}",
     R"(run.json: "endurance.terabytes_written" is 0; allowed: a number above 0 and below 1e12: what one drive is rated for)"},
    {"endurance_without_end", "endurance={\"terabytes_written\": 1e300, \"days\": 365}",
     R"(run.json: "endurance.terabytes_written" is 1e+300; allowed: a number above 0 and below 1e12: what one drive is rated for)"},
    {"endurance_in_words", "endurance={\"terabytes_written\": \"600TB\", \"days\": 365}",
     R"(run.json: "endurance.terabytes_written" is "600TB"; allowed: a number above 0 and below 1e12: what one drive is rated for)"},
    {"a_rate_beyond_fp32", "optimizer.params.lr=1e300",
     R"(run.json: "optimizer.params.lr" is 1e+300; allowed: what fp32 holds, 3.4e38 at the most)"},
    {"an_epsilon_beyond_fp32", "optimizer.params.eps=1e39",
     R"(run.json: "optimizer.params.eps" is 1e+39; allowed: what fp32 holds, 3.4e38 at the most)"},
    {"negative_seed", "seed=-1", R"(run.json: "seed" is -1; allowed: an integer from 0 to 9223372036854775807)"},
    {"huge_seed", "seed=18446744073709551615",
     R"(run.json: "seed" is 18446744073709551615; allowed: an integer from 0 to 9223372036854775807)"},
};
const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Table, BadValue, testing::ValuesIn(kBadValues), kName);

class BadKey : public testing::TestWithParam<Case> {};

TEST_P(BadKey, is_refused_with_the_nearest_known_or_the_reason) {
  EXPECT_EQ(error_of(kGood, {GetParam().override_text}), GetParam().message);
}

constexpr const char* kTopKeys =
    "model, data, train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps, optimizer, "
    "scheduler, gradient_clipping, bf16, fp16, zero_optimization, steps_per_print, seed, endurance, tensorboard, "
    "sluice, and those of DeepSpeed's that are not needed here";
constexpr const char* kOptimizerKeys =
    "lr, betas, eps, momentum, weight_decay, adam_w_mode, torch_adam, fused, foreach, set_grad_none";
constexpr const char* kSluiceKeys =
    "device, device_memory, host_memory, nvme, chunk_elements, commit_interval, io_backend, io_block, io_depth, "
    "placement, "
    "update, state_dtype, recompute, loss_tile_tokens, compute_threads, update_threads, trace";

TEST(UnknownTypes, are_named_together_with_all_else_that_is_not_there) {
  const std::string all = error_of(kGood, {R"(optimizer={"type": "OneBitAdam", "params": {"lr": 1, "freeze_step": 3}})",
                                           R"(scheduler={"type": "OneCycle", "params": {"cycle_min_lr": 1}})",
                                           R"(flops_profiler={"enabled": true})"});
  EXPECT_THAT(all, testing::StartsWith(
                       R"(run.json: "optimizer.type" is "OneBitAdam"; allowed: "AdamW", "Adam", "Adagrad", "Lion" or )"
                       R"("SGD"; "scheduler.type" is "OneCycle"; allowed: "WarmupLR", "WarmupDecayLR" or )"
                       R"("WarmupCosineLR"; not supported yet: "flops_profiler" ()"));
  EXPECT_EQ(error_of(kGood, {R"(scheduler={"type": "LRRangeTest", "params": {"lr_range_test_step_size": 1}})"}),
            R"(run.json: "scheduler.type" is "LRRangeTest"; allowed: "WarmupLR", "WarmupDecayLR" or "WarmupCosineLR")");
}

TEST(LongKey, is_cut_and_shown_as_json) {
  std::string text = R"({"model": {}, "a\u0000)";
  text.append(20'000, 'b');
  text += R"(": 1})";
  const std::string error = error_of(text);
  EXPECT_THAT(error, testing::StartsWith(R"(run.json: unknown key "a\u0000bbb)"));
  EXPECT_LT(error.size(), 2000u);
}

TEST(DottedKey, is_told_how_files_have_sections) {
  const auto error_with = [](const std::string& more) {
    return error_of(kGood.substr(0, kGood.size() - 1) + ", " + more + "}");
  };
  EXPECT_EQ(error_with(R"("sluice.host_memory": "1GiB")"),
            R"(run.json: key "sluice.host_memory" at the top has a dot: in a file, sections are objects: "sluice": )"
            R"({"host_memory": ...})");
  EXPECT_EQ(error_with(R"("sluice": {"placement.state": "nvme"})"),
            R"(run.json: key "placement.state" in "sluice" has a dot: in a file, sections are objects: "placement": )"
            R"({"state": ...})");
}

const Case kBadKeys[] = {
    {"typo", "sluice.host_memroy=128MiB",
     std::string(
         R"(run.json: unknown key "sluice.host_memroy" (value "128MiB"); did you mean "sluice.host_memory"? )") +
         R"(Allowed in "sluice": )" + kSluiceKeys},
    {"typo_at_the_top", "gradient_cliping=1",
     std::string(R"(run.json: unknown key "gradient_cliping" (value 1); did you mean "gradient_clipping"? )") +
         "Allowed at the top: " + kTopKeys},
    {"right_name_in_the_wrong_section", "device_memory=64MiB",
     std::string(R"(run.json: unknown key "device_memory" (value "64MiB"); did you mean "sluice.device_memory"? )") +
         "Allowed at the top: " + kTopKeys},
    {"typo_two_levels_down", "optimizer.params.beta=[0.9,0.95]",
     std::string(
         R"(run.json: unknown key "optimizer.params.beta" (value [0.9,0.95]); did you mean "optimizer.params.betas"? )") +
         R"(Allowed in "optimizer.params": )" + kOptimizerKeys},
    {"typo_in_a_group", R"(optimizer.param_groups=[{"params":["*"],"weight_decays":0}])",
     R"(run.json: unknown key "optimizer.param_groups.weight_decays" (value 0); did you mean )"
     R"("optimizer.param_groups.weight_decay"? Allowed in "optimizer.param_groups": params, lr_factor, betas, eps, )"
     R"(momentum, weight_decay)"},
    {"rate_of_a_group", R"(optimizer.param_groups=[{"params":["*"],"lr":1}])",
     R"(run.json: not supported yet: "optimizer.param_groups.lr" (a rate beside the schedule's; lr_factor multiplies )"
     R"(the schedule's); leave it out)"},
    {"typo_of_a_long_section", R"(optimiser={"type":"AdamW","params":{"lr":0.0001,"betas":[0.9,0.999],"eps":1e-8}})",
     std::string(R"(run.json: unknown key "optimiser" (value )") +
         R"({"type":"AdamW","params":{"lr":0.0001,"betas":[0.9,0.999],"e...); did you mean "optimizer"? )" +
         "Allowed at the top: " + kTopKeys},
    {"nothing_like_it", "optimizer.params.trust_coefficient=1",
     std::string(R"(run.json: unknown key "optimizer.params.trust_coefficient" (value 1). Allowed in )") +
         R"("optimizer.params": )" + kOptimizerKeys},
    {"no_more_than_alike_elsewhere", "optimizer.params.lr_scale=1",
     std::string(R"(run.json: unknown key "optimizer.params.lr_scale" (value 1). Allowed in "optimizer.params": )") +
         kOptimizerKeys},
    {"typo_in_the_wrong_section", "optimizer.params.loss_scales=1",
     std::string(
         R"(run.json: unknown key "optimizer.params.loss_scales" (value 1); did you mean "fp16.loss_scale"? )") +
         R"(Allowed in "optimizer.params": )" + kOptimizerKeys},
    {"words_whose_first_letters_are_the_key", "optimizer.params.learning_rate=1e-4",
     std::string(R"(run.json: unknown key "optimizer.params.learning_rate" (value 0.0001); did you mean )") +
         R"("optimizer.params.lr"? Allowed in "optimizer.params": )" + kOptimizerKeys},
    {"first_letters_of_a_key_elsewhere", "train_path=x",
     std::string(R"(run.json: unknown key "train_path" (value "x"). Allowed at the top: )") + kTopKeys},
    {"clipping_by_the_optimizer", "optimizer.params.max_grad_norm=1",
     R"(run.json: not supported yet: "optimizer.params.max_grad_norm" (clipping by the optimizer; "gradient_clipping" )"
     R"(clips); leave it out)"},
    {"half_of_its_letters_elsewhere", "world_size=2",
     std::string(R"(run.json: unknown key "world_size" (value 2). Allowed at the top: )") + kTopKeys},
    {"typo_in_placement", "sluice.placement.activation=host",
     R"(run.json: unknown key "sluice.placement.activation" (value "host"); did you mean )"
     R"("sluice.placement.activations"? Allowed in "sluice.placement": weights, state, gradient, activations)"},
    {"scheduler_of_another_kind", "scheduler.type=OneCycle",
     R"(run.json: "scheduler.type" is "OneCycle"; allowed: "WarmupLR", "WarmupDecayLR" or "WarmupCosineLR")"},
    {"scheduler_without_type", "scheduler.params.warmup_num_steps=3",
     R"(run.json: "scheduler.type" is missing; allowed: "WarmupLR", "WarmupDecayLR" or "WarmupCosineLR")"},
    {"scheduler_that_ends_in_its_warm_up",
     R"(scheduler={"type":"WarmupDecayLR","params":{"warmup_num_steps":10,"total_num_steps":10}})",
     R"(run.json: "scheduler.params.total_num_steps" is 10; allowed: an integer above warmup_num_steps, )"
     R"(for WarmupDecayLR and WarmupCosineLR; "scheduler.params.warmup_num_steps" is 10)"},
    {"scheduler_that_ends_in_a_warm_up_that_is_not_given",
     R"(scheduler={"type":"WarmupDecayLR","params":{"total_num_steps":500}})",
     R"(run.json: "scheduler.params.total_num_steps" is 500; allowed: an integer above warmup_num_steps, )"
     R"(for WarmupDecayLR and WarmupCosineLR; "scheduler.params.warmup_num_steps" is 1000 where it is not given)"},
    {"scheduler_without_an_end", R"(scheduler={"type":"WarmupCosineLR","params":{"warmup_num_steps":10}})",
     R"(run.json: "scheduler.params.total_num_steps" is missing; allowed: an integer above warmup_num_steps, )"
     R"(for WarmupDecayLR and WarmupCosineLR)"},
    {"old_name_of_bf16", "bfloat16.enabled=true", R"(run.json: "bfloat16" is an old name: write "bf16")"},
    {"a_cosines_largest_rate",
     R"(scheduler={"type":"WarmupCosineLR","params":{"total_num_steps":2000,"warmup_max_lr":1}})",
     R"(run.json: "scheduler.params.warmup_max_lr" is 1; allowed: a number, 0 or more, for WarmupLR and WarmupDecayLR)"},
    {"a_ratio_of_another_scheduler", R"(scheduler={"type":"WarmupLR","params":{"cos_min_ratio":0.5}})",
     R"(run.json: "scheduler.params.cos_min_ratio" is 0.5; allowed: a number, 0 or more, for WarmupCosineLR)"},
    {"a_total_of_a_rate_that_stays", R"(scheduler={"type":"WarmupLR","params":{"total_num_steps":2000}})",
     R"(run.json: "scheduler.params.total_num_steps" is 2000; allowed: an integer above warmup_num_steps, )"
     R"(for WarmupDecayLR and WarmupCosineLR)"},
    {"several_that_are_not_there",
     R"(zero_optimization={"zero_quantized_weights":true,"zero_quantized_gradients":true})",
     R"(run.json: not supported yet: "zero_optimization.zero_quantized_weights" (several ranks), )"
     R"("zero_optimization.zero_quantized_gradients" (several ranks); leave them out)"},
    {"fp16_casts", "fp16.auto_cast=true",
     R"(run.json: not supported yet: "fp16.auto_cast" (casts of the model's inputs; they are token ids); leave it out)"},
    {"no_bias_correction", "optimizer.params.bias_correction=false",
     R"(run.json: not supported yet: "optimizer.params.bias_correction" (updates without bias correction); leave it out)"},
    {"typo_in_fp16", "fp16.loss_scale_windows=2",
     R"(run.json: unknown key "fp16.loss_scale_windows" (value 2); did you mean "fp16.loss_scale_window"? )"
     R"(Allowed in "fp16": enabled, loss_scale, initial_scale_power, loss_scale_window, hysteresis, )"
     R"(consecutive_hysteresis, min_loss_scale)"},
    {"typo_in_offload", R"(zero_optimization.offload_optimizer={"nvme_pth":"/d"})",
     R"(run.json: unknown key "zero_optimization.offload_optimizer.nvme_pth" (value "/d"); did you mean )"
     R"("zero_optimization.offload_optimizer.nvme_path"? Allowed in "zero_optimization.offload_optimizer": device, nvme_path, )"
     R"(pin_memory, buffer_count, fast_init, pipeline, pipeline_read, pipeline_write, ratio, super_offload, )"
     R"(cpuadam_cores_perc)"},
    {"typo_among_many", "zero_optimization.stagee=3",
     R"(run.json: unknown key "zero_optimization.stagee" (value 3); did you mean "zero_optimization.stage"? Allowed in )"
     R"("zero_optimization": stage, offload_optimizer, offload_param, and those of DeepSpeed's that are not needed here)"},
    {"offload_elsewhere", R"(zero_optimization.offload_param={"device":"disk"})",
     R"(run.json: "zero_optimization.offload_param.device" is "disk"; allowed: "none", "cpu" or "nvme")"},
    {"typo_in_what_is_not_needed", "aio.queue_dept=8",
     R"(run.json: unknown key "aio.queue_dept" (value 8); did you mean "aio.queue_depth"? Allowed in "aio": block_size, )"
     R"(queue_depth, thread_count, intra_op_parallelism, single_submit, overlap_events)"},
    {"section_that_is_a_number", "aio=3", R"(run.json: "aio" is 3; allowed: an object)"},
    {"decay_of_another_type", R"(optimizer={"type":"Lion","params":{"adam_w_mode":true}})",
     R"(run.json: "optimizer.params.adam_w_mode" is true; allowed: true or false, for Adam and AdamW, and not with )"
     R"("optimizer.type" "Lion")"},
};
INSTANTIATE_TEST_SUITE_P(Table, BadKey, testing::ValuesIn(kBadKeys), kName);

TEST(BadFiles, bf16_and_fp16_exclude_each_other) {
  EXPECT_EQ(error_of(kGood, {"bf16.enabled=true", "fp16.enabled=true"}),
            R"(run.json: "fp16.enabled" is true; allowed: true or false, and not with "bf16.enabled" true)");
  EXPECT_EQ(error_of(kGood, {"bf16.enabled=true", "fp16.enabled=false"}), "no error");
  EXPECT_EQ(error_of(kGood, {"bf16.enabled=false", "fp16.enabled=true"}), "no error");
}

struct Text {
  std::string name, text, message;
};
class BadText : public testing::TestWithParam<Text> {};
TEST_P(BadText, is_refused_by_place) { EXPECT_EQ(error_of(GetParam().text), GetParam().message); }

const Text kBadTexts[] = {
    {"trailing_comma", "{\n  \"seed\": 1,\n}",
     "run.json: line 3, column 1: not JSON: syntax error while parsing object key - unexpected '}'; expected string "
     "literal"},
    {"cut_short", "{\"seed\": ",
     "run.json: line 1, column 10: not JSON: syntax error while parsing value - unexpected end of input; expected '[', "
     "'{', or a literal"},
    {"empty", "",
     "run.json: line 1, column 1: not JSON: syntax error while parsing value - unexpected end of input; expected '[', "
     "'{', or a literal"},
    {"a_list", "[1]", "run.json: the file must hold one JSON object"},
    {"beyond_doubles", R"({"gradient_clipping": 1e400})",
     "run.json: a number that no double can hold: number overflow parsing '1e400'"},
    {"nested_without_end", std::string(100000, '['), "run.json: values within values, deeper than 32"},
    {"repeated_key", R"({"data": {"path": "a", "path": "b"}})", R"(run.json: key "data.path" is given twice)"},
    {"repeated_keys", R"({"data": {"path": "a", "path": "b"}, "data": {}})",
     R"(run.json: key "data.path" is given twice)"},
    {"no_model", R"({"data": {"sequence_length": 8}})",
     R"(run.json: "model" is missing; allowed: an object, as {"type": "gpt2", ...} or {"path": "FOLDER"})"},
    {"no_sequence_length", R"({"model": {}, "data": {}})",
     R"(run.json: "data.sequence_length" is missing; allowed: a positive integer)"},
};
INSTANTIATE_TEST_SUITE_P(Table, BadText, testing::ValuesIn(kBadTexts), kName);

TEST(BadFiles, a_contradiction_of_batch_sizes_prints_the_equation) {
  const auto with = [](const std::string& keys) {
    return error_of(R"({"model": {}, "data": {"sequence_length": 8}, )" + keys + "}");
  };
  EXPECT_EQ(with(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)"),
            "run.json: train_batch_size 32 = train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 3 x 1 rank "
            "does not hold: the right side is 12");
  EXPECT_EQ(with(R"("train_batch_size": 32, "train_micro_batch_size_per_gpu": 5)"),
            "run.json: train_batch_size 32 = train_micro_batch_size_per_gpu 5 x gradient_accumulation_steps auto x 1 "
            "rank has no solution in whole numbers");
  EXPECT_EQ(with(R"("train_batch_size": 2, "gradient_accumulation_steps": 3)"),
            "run.json: train_batch_size 2 = train_micro_batch_size_per_gpu auto x gradient_accumulation_steps 3 x 1 "
            "rank has no solution in whole numbers");
  EXPECT_EQ(with(R"("gradient_accumulation_steps": 3)"),
            "run.json: train_batch_size auto = train_micro_batch_size_per_gpu auto x gradient_accumulation_steps 3 x 1 "
            "rank has no solution: give train_batch_size or train_micro_batch_size_per_gpu");
}

TEST(BadFiles, an_update_mode_that_must_undo_refuses_what_it_cannot_live_with) {
  EXPECT_EQ(
      error_of(kGood, {"sluice.update=speculative", "sluice.commit_interval=3"}),
      R"(run.json: sluice.update is "speculative" and sluice.commit_interval is 3: an update that may have to be )"
      R"(undone needs a commit in every step; set sluice.commit_interval to 1 or sluice.update to "deferred")");
  EXPECT_EQ(
      error_of(kGood, {"sluice.update=replay", "sluice.placement.gradient=host"}),
      R"(run.json: sluice.update is "replay", which keeps no gradients, and sluice.placement.gradient names a home )"
      "for them: leave out one of the two");
}

TEST(BadFiles, state_on_the_device_refuses_weights_and_gradients_elsewhere) {
  EXPECT_EQ(
      error_of(kGood, {R"(sluice.placement.state={"device": 0.3, "nvme": 0.7})",
                       R"(sluice.placement.weights={"host+device": 0.5, "nvme": 0.5})"}),
      R"(run.json: sluice.placement.weights: "nvme" does not go with sluice.placement.state "device": the device )"
      "updates a chunk where its state, its gradient and its weights lie; leave sluice.placement.weights out, or "
      R"(keep them on the device ("host+device", "nvme+device"))");
  EXPECT_EQ(
      error_of(kGood, {"sluice.placement.state=device", "sluice.placement.gradient=host"}),
      R"(run.json: sluice.placement.gradient: "host" does not go with sluice.placement.state "device": the device )"
      "updates a chunk where its state, its gradient and its weights lie; leave sluice.placement.gradient out, or "
      R"(set it to "device")");
}

TEST(BadFiles, an_override_that_is_none_is_refused) {
  EXPECT_EQ(error_of(kGood, {"steps_per_print"}), "--set steps_per_print: not path.to.key=value");
  EXPECT_EQ(error_of(kGood, {"=3"}), "--set =3: not path.to.key=value");
  EXPECT_EQ(error_of(kGood, {"data.sequence_length.x=3"}),
            "--set data.sequence_length.x=3: \"data.sequence_length\" is not an object");
  std::string deep = "a";
  for (int level = 0; level < 100'000; ++level) deep += ".a";
  EXPECT_THAT(error_of(kGood, {deep + "=3"}), testing::EndsWith("...: values within values, deeper than 32"));
}

TEST(BadFiles, a_text_with_a_byte_0_is_refused) {
  EXPECT_THAT(error_of(kGood, {R"(sluice.trace="tr\u0000b")"}),
              testing::HasSubstr(R"("sluice/trace" is "tr\u0000b": a text without a byte 0 is allowed)"));
  EXPECT_THAT(error_of(kGood, {R"(sluice.nvme=["a\u0000b"])"}), testing::HasSubstr(R"("sluice/nvme/0" is "a\u0000b")"));
}

TEST(BadFiles, a_file_that_is_not_there_is_named) {
  try {
    load_config("/no/such/run.json", {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "/no/such/run.json: there is no such configuration file");
  }
}

}  // namespace
}  // namespace sluice
