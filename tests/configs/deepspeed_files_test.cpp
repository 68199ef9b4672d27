// Files as DeepSpeed's and Hugging Face's users have them, with `model` and `data` added.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "configs/deepspeed_keys.h"
#include "configs/keys.h"
#include "configs/run_config.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

RunConfig read(const std::string& keys, const std::vector<std::string>& overrides = {}) {
  return parse_config(R"({"model": {"type": "gpt2"}, "data": {"sequence_length": 8}, )" + keys + "}", "run.json",
                      overrides);
}
std::string refusal_of(const std::string& keys, const std::vector<std::string>& overrides = {}) {
  return message_or<ConfigError>("no error", [&] { read(keys, overrides); });
}
const std::string kBatch = R"("train_batch_size": 2)";

// Every key of DeepSpeedZeroConfig, its offload classes, DeepSpeedBF16Config, DeepSpeedFP16Config and CompileConfig at
// its default, as DeepSpeed 0.19.5's classes themselves write them (model_dump by alias; leaf_module's classes left
// out).
const std::string kClasses = R"(
  "zero_optimization": {
    "stage": 0, "contiguous_gradients": true, "reduce_scatter": true, "reduce_bucket_size": 500000000,
    "use_multi_rank_bucket_allreduce": true, "allgather_partitions": true, "allgather_bucket_size": 500000000,
    "overlap_comm": false, "load_from_fp32_weights": true, "elastic_checkpoint": false,
    "offload_param": {"device": "none", "nvme_path": null, "buffer_count": 5, "buffer_size": 100000000,
    "max_in_cpu": 1000000000, "pin_memory": true}, "offload_optimizer": {"device": "none", "nvme_path": null,
    "buffer_count": 4, "pin_memory": true, "pipeline_read": false, "pipeline_write": false, "fast_init": false,
    "ratio": 1.0, "super_offload": false, "cpuadam_cores_perc": 0.8}, "zenflow": null,
    "sub_group_size": 1000000000, "cpu_offload_param": null, "cpu_offload_use_pin_memory": null,
    "cpu_offload": null, "stage3_prefetch_bucket_size": 50000000, "stage3_param_persistence_threshold": 100000,
    "stage3_model_persistence_threshold": 9223372036854775807, "stage3_max_live_parameters": 1000000000,
    "stage3_max_reuse_distance": 1000000000, "stage3_gather_16bit_weights_on_model_save": false,
    "stage3_module_granularity_threshold": 0, "stage3_use_all_reduce_for_fetch_params": false,
    "stage3_allgather_sequential": false, "stage3_gather_fp16_weights_on_model_save": false,
    "ignore_unused_parameters": true, "legacy_stage1": false, "round_robin_gradients": false,
    "zero_hpz_partition_size": 1, "zero_quantized_weights": false, "zero_quantized_nontrainable_weights": false,
    "zero_quantized_gradients": false, "zeropp_loco_param": null, "mics_shard_size": -1,
    "mics_hierarchical_params_gather": false, "memory_efficient_linear": true,
    "pipeline_loading_checkpoint": false, "override_module_apply": true, "log_trace_cache_warnings": false,
    "enable_sanity_checks": false, "save_muon_momentum_buffer_in_memory": false, "leaf_module": {"classes": [],
    "names": [], "name_suffixes": []}},
  "bf16": {
    "enabled": false, "immediate_grad_update": false, "check_grad_overflow": true,
    "bf16_master_weights_and_grads": false, "bf16_optimizer_states": false},
  "fp16": {
    "enabled": false, "auto_cast": false, "loss_scale": 0.0, "initial_scale_power": 16, "loss_scale_window": 1000,
    "hysteresis": 2, "consecutive_hysteresis": false, "min_loss_scale": 1, "fp16_master_weights_and_grads": false},
  "compile": {
    "deepcompile": false, "free_activation": false, "free_activation_threshold": 10485760,
    "offload_activation": false, "offload_opt_states": false, "double_buffer": true, "symmetric_memory": false,
    "debug_log": false, "offload_parameters": false, "sync_before_reduce": false, "sync_after_reduce": false,
    "sync_before_allgather": false, "sync_after_allgather": false, "keep_int_input_tensors": true,
    "keep_all_input_tensors": false, "passes": null})";

TEST(DeepSpeedFiles, every_key_of_its_classes_loads_with_its_default) {
  const RunConfig config = read(kBatch + "," + kClasses);
  EXPECT_EQ(config.precision, Precision::kFp32);
  EXPECT_THAT(config.sluice.nvme, IsEmpty());
}

// The documentation's other sections (docs/_pages/config-json.md), each asking for nothing.
TEST(DeepSpeedFiles, the_other_sections_load_where_they_are_off) {
  const RunConfig config = read(kBatch + R"(, "steps_per_print": null, "disable_allgather": false, "dump_state": false,
    "hybrid_engine": {"enabled": false, "max_out_tokens": 512}, "aio": {"block_size": 1048576, "use_gds": false},
    "flops_profiler": {"enabled": false, "profile_step": 1}, "elasticity": {"enabled": false}, "amp": {"enabled": false},
    "comms_logger": {"enabled": true, "verbose": false}, "checkpoint": {"tag_validation": "Warn", "load_universal": false,
    "use_node_local_storage": false, "parallel_write": {"pipeline_stage": false}}, "tensor_parallel": {"autotp_size": 1},
    "data_types": {"grad_accum_dtype": "fp32"}, "managed_gradient_accumulation": true, "sequence_parallel_size": 1,
    "gradient_allreduce_op": "mean", "log_level": null, "timers": {"throughput": {"enabled": true}},
    "compression_training": {"enabled": false}, "optimizer": {"type": "AdamW", "params": {"weight_decay": 0,
    "amsgrad": false, "bias_correction": true, "fp32_optimizer_states": true}}, "zero_optimization": {"offload_param": null}
    )");
  EXPECT_EQ(config.steps_per_print, 10);
}

std::string as_override(std::string_view path, std::string_view value) { return fmt::format("{}={}", path, value); }

TEST(DeepSpeedFiles, a_key_that_is_not_needed_is_named_in_a_note_with_its_reason) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.fate != DeepSpeedKey::Fate::kNotNeeded || find_key(key.path) != nullptr) continue;
    EXPECT_THAT(read(kBatch, {as_override(key.path, "3")}).notes,
                Contains(fmt::format("not needed: \"{}\": {}", key.path, key.reason)));
  }
}

TEST(DeepSpeedFiles, a_key_that_is_not_there_is_refused_unless_it_asks_for_nothing) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.fate != DeepSpeedKey::Fate::kNotThere || key.path.starts_with("optimizer.param_groups")) continue;
    const auto refusal = [&](std::string_view value) {
      return refusal_of(kBatch, {"scheduler.type=WarmupLR", as_override(key.path, value)});
    };
    EXPECT_EQ(refusal("\"x\""),
              fmt::format("run.json: not supported yet: \"{}\" ({}); leave it out", key.path, key.reason));
    EXPECT_EQ(refusal("null"), "no error") << key.path;
    const bool list = key.asks_nothing.starts_with('[');
    const std::string_view nothing = list ? key.asks_nothing.substr(1, 1) : key.asks_nothing;
    if (nothing == "[") continue;
    EXPECT_EQ(refusal(nothing), "no error") << key.path;
  }
}

TEST(DeepSpeedFiles, a_section_that_is_not_there_is_refused_unless_it_is_empty_or_not_enabled) {
  EXPECT_EQ(refusal_of(kBatch, {"amp={}"}), "no error");
  EXPECT_EQ(refusal_of(kBatch, {"amp.enabled=auto"}), "no error");
  EXPECT_EQ(refusal_of(kBatch, {"amp.enabled=null"}), "no error");
  EXPECT_THAT(refusal_of(kBatch, {"amp.enabled=true"}), HasSubstr("not supported yet: \"amp\""));
  EXPECT_THAT(refusal_of(kBatch, {"amp.enabled=yes"}), HasSubstr("not supported yet: \"amp\""));
  EXPECT_THAT(refusal_of(kBatch, {"amp.opt_level=O1"}), HasSubstr("not supported yet: \"amp\""));
  EXPECT_EQ(refusal_of(kBatch, {"compile.passes=[]"}), "no error");
  EXPECT_THAT(refusal_of(kBatch, {R"(compile.passes=["prefetch"])"}), HasSubstr("not supported yet"));
}

TEST(DeepSpeedFiles, an_older_name_of_a_key_that_is_not_needed_loads_too) {
  for (const char* key : {"seq_parallel_communication_data_type", "seq_parallel_comm_data_type"})
    EXPECT_EQ(refusal_of(kBatch, {as_override(key, "fp32")}), "no error");
}

TEST(DeepSpeedFiles, null_is_as_if_the_key_were_not_given) {
  const std::string keys = kBatch + R"(, "gradient_clipping": null, "optimizer": null, "bf16": {"enabled": null},
      "sluice": {"host_memory": null}, "zero_optimization": null, "aio": null)";
  EXPECT_EQ(to_json(read(keys)), to_json(read(kBatch)));
  EXPECT_EQ(refusal_of(kBatch + R"(, "gradient_cliping": null)").find("run.json: unknown key"), 0u);
}

// As the Trainer's guide has it: what the Trainer knows from its arguments is "auto".
const std::string kTrainers = R"(
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
    "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false)";

TEST(DeepSpeedFiles, the_trainers_needs_what_only_its_user_knows) {
  EXPECT_EQ(refusal_of(kTrainers),
            "run.json: \"auto\" that is not filled in here: \"optimizer.params.lr\": write the rate (the Trainer's "
            "default is 5e-5); \"scheduler.params.total_num_steps\": write the number of steps of the whole run");
  EXPECT_THAT(refusal_of(kTrainers, {"optimizer.params.lr=1e-4", "scheduler.params.total_num_steps=50"}),
              HasSubstr("give train_batch_size or train_micro_batch_size_per_gpu"));
}

TEST(DeepSpeedFiles, the_trainers_auto_is_its_default_and_a_note_says_so) {
  const RunConfig config = read(kTrainers, {"optimizer.params.lr=1e-4", "scheduler.params.total_num_steps=50",
                                            "train_micro_batch_size_per_gpu=4"});
  EXPECT_EQ(config.gradient_clipping, 1);
  EXPECT_EQ(config.precision, Precision::kFp32);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.schedule.max_lr, 1e-4);
  EXPECT_EQ(config.schedule.min_lr, 0);
  EXPECT_EQ(config.schedule.warmup_steps, 1);
  EXPECT_EQ(config.batch.train, 4);
  for (const std::string note :
       {"\"gradient_clipping\" \"auto\": 1.0 is taken, the Trainer's default of max_grad_norm",
        "\"optimizer.params.betas\" \"auto\": [0.9,0.999] is taken, the Trainer's default",
        "\"optimizer.params.eps\" \"auto\": 1e-08 is taken, the Trainer's default",
        "\"optimizer.params.weight_decay\" \"auto\": 0.0 is taken, the Trainer's default",
        "\"scheduler.params.warmup_min_lr\" \"auto\": 0 is taken, as the Trainer takes it",
        "\"scheduler.params.warmup_max_lr\" \"auto\": 0.0001 is taken, the optimizer's rate",
        "\"scheduler.params.warmup_num_steps\" \"auto\": 1 is taken, as of a Trainer without --warmup_steps",
        "\"train_batch_size\" \"auto\": 4 is taken, as follows from the others",
        "\"gradient_accumulation_steps\" \"auto\": 1 is taken, as follows from the others",
        "\"bf16.enabled\" \"auto\": false is taken, as of a Trainer without --bf16; write true for bf16",
        "\"fp16.enabled\" \"auto\": false is taken, as of a Trainer without --fp16; write true for fp16"}) {
    EXPECT_THAT(config.notes, Contains(note));
  }
  EXPECT_EQ(read(kTrainers, {"optimizer.params.lr=1e-4", "scheduler.params.total_num_steps=50",
                             "train_micro_batch_size_per_gpu=4", "bf16.enabled=true"})
                .precision,
            Precision::kBf16);
}

TEST(DeepSpeedFiles, an_auto_that_the_trainer_has_not_either_is_refused_with_what_to_write) {
  EXPECT_EQ(refusal_of(kBatch, {"fp16.initial_scale_power=auto"}),
            "run.json: \"auto\" that is not filled in here: \"fp16.initial_scale_power\": write the power, or leave it "
            "out for 16");
  EXPECT_EQ(refusal_of(kBatch, {"fp16.loss_scale=auto", "fp16.loss_scale_window=auto", "fp16.hysteresis=auto",
                                "fp16.min_loss_scale=auto"}),
            "run.json: \"auto\" that is not filled in here: \"fp16.loss_scale\": write the scale, or 0 for a dynamic "
            "one; \"fp16.loss_scale_window\": write the number of steps, or leave it out for 1000; "
            "\"fp16.hysteresis\": write the number of overflows, or leave it out for 2; \"fp16.min_loss_scale\": write "
            "the scale, or leave it out for 1");
}

TEST(DeepSpeedFiles, accelerates_auto_of_stages_and_devices_is_not_needed) {
  const RunConfig config = read(kBatch + R"(, "gradient_clipping": 1, "zero_optimization": {"stage": "auto",
      "stage3_gather_16bit_weights_on_model_save": "auto",
      "offload_optimizer": {"device": "auto", "nvme_path": "auto"},
      "offload_param": {"device": "auto", "nvme_path": "auto"}})");
  EXPECT_THAT(config.sluice.nvme, IsEmpty());
  EXPECT_THAT(config.notes, Contains("\"zero_optimization.stage\" \"auto\" is not needed: no stage is needed, one rank "
                                     "has all"));
  EXPECT_THAT(config.notes, Contains("\"zero_optimization.offload_optimizer.device\" \"auto\" is not needed: the "
                                     "budgets decide"));
  EXPECT_THAT(config.notes, Contains(HasSubstr("offload_optimizer.nvme_path\" \"auto\" is not needed: sluice.nvme")));
  EXPECT_THAT(config.notes, Contains(HasSubstr("offload_param.nvme_path\" \"auto\" is not needed: sluice.nvme")));
}

TEST(DeepSpeedFiles, one_that_says_nothing_of_clipping_is_told_what_that_means) {
  const auto said = Contains(StartsWith("\"gradient_clipping\" is not given: nothing is clipped"));
  EXPECT_THAT(read(kBatch + R"(, "zero_optimization": {"stage": 3})").notes, said);
  EXPECT_THAT(read(kBatch + R"(, "zero_optimization": {"stage": 3}, "gradient_clipping": 0)").notes, Not(said));
  EXPECT_THAT(read(kBatch).notes, Not(said));
}

}  // namespace
}  // namespace sluice
