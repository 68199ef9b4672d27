// Configurations that are right: what they mean, what is derived, and that they survive being written and read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "core/bytes.h"
#include "core/errors.h"

namespace sluice {
namespace {

RunConfig parse(const std::string& text, std::vector<std::string> overrides = {}) {
  return parse_config(text, "run.json", overrides);
}

const std::string kSmallest =
    R"({"model": {"type": "gpt2"}, "data": {"sequence_length": 33}, "train_micro_batch_size_per_gpu": 3})";

const std::string kFull = R"({
  "model": {"type": "gpt2", "n_embd": 72, "n_layer": 5},
  "data": {"path": "/books", "tokenizer": "sentencepiece", "vocab_size": 331, "sequence_length": 33, "shuffle": false,
           "validation_fraction": 0.125},
  "train_batch_size": 12, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": "auto",
  "optimizer": {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.1,
                                           "adam_w_mode": false}},
  "gradient_clipping": 0.5, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "steps_per_print": 7,
  "seed": 11, "endurance": {"terabytes_written": 600, "days": 365},
  "sluice": {"device": "cpu", "device_memory": "2MiB", "host_memory": 3145728, "nvme": ["/local_nvme"], "chunk_elements": 1000,
             "commit_interval": 5, "update": "deferred", "state_dtype": "bf16", "recompute": "always",
             "io_backend": "threads", "io_block": "256KiB",
             "io_depth": 3,
             "placement": {"weights": {"nvme+device": 0.25, "host": 0.5, "nvme": 0.25}, "state": "host",
                           "gradient": "device", "activations": "auto"},
             "loss_tile_tokens": 16, "compute_threads": 2, "update_threads": 1, "trace": "hops.json"}})";

TEST(GoodFiles, what_is_not_given_has_the_documented_default) {
  const RunConfig config = parse(kSmallest);
  EXPECT_EQ(config.precision, Precision::kFp32);
  EXPECT_EQ(config.batch.train, 3);
  EXPECT_EQ(config.batch.accumulation, 1);
  EXPECT_EQ(config.optimizer.kind, AdamKind::kAdamW);
  EXPECT_EQ(config.gradient_clipping, 0);
  EXPECT_EQ(config.data.tokenizer, TokenizerKind::kByte);
  EXPECT_EQ(config.data.shuffle, Shuffle::kYes);
  EXPECT_EQ(config.data.validation_fraction, 0);
  EXPECT_EQ(config.sluice.device, DeviceKind::kAuto);
  EXPECT_EQ(config.sluice.io_backend, IoBackend::kAuto);
  EXPECT_EQ(config.sluice.chunk_elements, 0);
  EXPECT_EQ(config.sluice.commit_interval, 0);
  EXPECT_EQ(config.sluice.update, UpdateMode::kAuto);
  EXPECT_EQ(config.sluice.state_dtype, DType::kFp32);
  EXPECT_TRUE(config.sluice.nvme.empty());
  EXPECT_TRUE(config.sluice.placement.weights.empty());
}

TEST(GoodFiles, every_key_of_batch_data_and_optimizer_arrives) {
  const RunConfig config = parse(kFull);
  EXPECT_EQ(config.endurance.terabytes_written, 600);
  EXPECT_EQ(config.endurance.days, 365);
  EXPECT_EQ(config.model, R"({"type":"gpt2","n_embd":72,"n_layer":5})");
  EXPECT_EQ(config.data.path, "/books");
  EXPECT_EQ(config.data.tokenizer, TokenizerKind::kSentencePiece);
  EXPECT_EQ(config.data.vocab_size, 331);
  EXPECT_EQ(config.data.sequence_length, 33);
  EXPECT_EQ(config.data.shuffle, Shuffle::kNo);
  EXPECT_EQ(config.data.validation_fraction, 0.125);
  EXPECT_EQ(config.batch.accumulation, 4);
  EXPECT_EQ(config.optimizer.kind, AdamKind::kAdam);
  EXPECT_EQ(config.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(config.optimizer.beta1, 0.8);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.optimizer.epsilon, 1e-7);
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.precision, Precision::kBf16);
  EXPECT_EQ(config.steps_per_print, 7);
  EXPECT_EQ(config.seed, 11u);
}

// A file as DeepSpeed's users own it, with a model and data.
const std::string kDeepSpeeds = R"({
  "model": {"type": "gpt2"}, "data": {"sequence_length": 33},
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01,
                                            "torch_adam": true, "adam_w_mode": true}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 100,
                                                    "total_num_steps": 1000}},
  "gradient_clipping": 1.0, "steps_per_print": 10, "wall_clock_breakdown": false,
  "bf16": {"enabled": true},
  "fp16": {"enabled": false, "auto_cast": false, "loss_scale": 0, "loss_scale_window": 500, "hysteresis": 2,
           "min_loss_scale": 1, "initial_scale_power": 15},
  "zero_optimization": {"stage": 3,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/drive0", "pin_memory": true, "buffer_count": 4},
    "offload_param": {"device": "nvme", "nvme_path": "/drive1", "buffer_count": 5, "buffer_size": 1e8,
                      "max_in_cpu": 1e9},
    "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": 5e8, "sub_group_size": 1e9,
    "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
    "stage3_max_live_parameters": 1e9},
  "aio": {"block_size": 1048576, "queue_depth": 8, "thread_count": 1, "single_submit": false, "overlap_events": true},
  "amp": {"enabled": false}, "communication_data_type": null, "sparse_gradients": false,
  "tensorboard": {"enabled": true, "output_path": "runs", "job_name": "demo"}, "wandb": {"enabled": false},
  "csv_monitor": {"enabled": true, "output_path": "runs", "job_name": "demo"}})";

TEST(GoodFiles, deepspeeds_own_loads_and_says_what_of_it_is_not_needed) {
  const RunConfig config = parse(kDeepSpeeds);
  EXPECT_THAT(config.sluice.nvme, testing::ElementsAre("/drive0", "/drive1"));
  EXPECT_EQ(config.batch.accumulation, 8);
  EXPECT_EQ(config.optimizer.kind, AdamKind::kAdamW);
  const auto note = [](const std::string& keys, const std::string& reason) {
    return testing::AllOf(testing::HasSubstr(keys), testing::HasSubstr(": " + reason));
  };
  const std::string zero = "\"zero_optimization.";
  EXPECT_THAT(
      config.notes,
      testing::UnorderedElementsAre(
          note("not needed: \"optimizer.params.torch_adam\"", "the update is the engine's own"),
          note(zero + "stage\", " + zero + "overlap_comm\", " + zero + "reduce_bucket_size\"", "one rank"),
          note(zero + "offload_optimizer.device\", " + zero + "offload_optimizer.pin_memory\"", "sluice.device_m"),
          note(zero + "contiguous_gradients\"", "offsets are planned"),
          note(zero + "sub_group_size\"", "sluice.chunk_elements"), note("\"aio.block_size\", \"aio.queue_d", "req"),
          note("\"wall_clock_breakdown\"", "the run's metrics.jsonl"),
          note("not needed: \"csv_monitor\":", "of the monitors tensorboard alone is written"),
          note("\"gradient_accumulation_steps\" \"auto\"", "8 is taken, as follows from the others")));
  EXPECT_EQ(config.tensorboard, "runs/demo");
  EXPECT_TRUE(parse(to_json(config)).notes.empty());
  EXPECT_EQ(to_json(parse(to_json(config))), to_json(config));
}

TEST(GoodFiles, tensorboard_is_written_where_it_is_enabled_in_deepspeeds_folder) {
  const auto folder = [](const std::string& section) {
    auto document = nlohmann::json::parse(kDeepSpeeds);
    document["tensorboard"] = nlohmann::json::parse(section);
    const RunConfig config = parse(document.dump());
    EXPECT_EQ(parse(to_json(config)).tensorboard, config.tensorboard);
    return config.tensorboard;
  };
  EXPECT_EQ(folder(R"({"enabled": true})"), "./DeepSpeedJobName");
  EXPECT_EQ(folder(R"({"enabled": true, "output_path": "/logs/"})"), "/logs/DeepSpeedJobName");
  EXPECT_EQ(folder(R"({"enabled": true, "job_name": "a/b"})"), "./a/b");
  EXPECT_EQ(folder(R"({"output_path": "/logs", "job_name": "demo"})"), "");
  EXPECT_EQ(folder(R"({"enabled": false, "output_path": ""})"), "");
  EXPECT_EQ(folder(R"({"enabled": true, "output_path": ""})"), "./DeepSpeedJobName");
  EXPECT_EQ(folder("null"), "");
  RunConfig of_root = parse(kDeepSpeeds);
  of_root.tensorboard = "/";  // as a run has it that made "/" and "." absolute
  EXPECT_EQ(parse(to_json(of_root)).tensorboard, "/.");
}

TEST(GoodFiles, drives_are_those_of_the_engines_section_before_those_of_the_offload) {
  const std::string offload = "zero_optimization.offload_optimizer=";
  const auto nvme = [&](std::vector<std::string> overrides) { return parse(kSmallest, overrides).sluice.nvme; };
  EXPECT_THAT(nvme({offload + R"({"device": "nvme", "nvme_path": "/d"})"}), testing::ElementsAre("/d"));
  EXPECT_THAT(nvme({offload + R"({"device": "nvme", "nvme_path": "/d"})", R"(sluice.nvme=["/e"])"}),
              testing::ElementsAre("/e"));
  EXPECT_THAT(nvme({offload + R"({"device": "nvme", "nvme_path": "/d"})", "sluice.nvme=[]"}),
              testing::ElementsAre("/d"))
      << "as the config.json of a run has it that names none";
  EXPECT_THAT(nvme({offload + R"({"device": "nvme", "nvme_path": "/d"})",
                    R"(zero_optimization.offload_param={"device": "nvme", "nvme_path": "/d/./"})"}),
              testing::ElementsAre("/d"));
  EXPECT_TRUE(nvme({offload + R"({"device": "cpu", "nvme_path": "/d"})"}).empty());
  EXPECT_TRUE(nvme({offload + R"({"device": "cpu", "nvme_path": ""})"}).empty());
  EXPECT_THAT(
      parse(kSmallest, {offload + R"({"device": "cpu", "nvme_path": "/d"})"}).notes,
      testing::Contains("not needed: \"zero_optimization.offload_optimizer.nvme_path\": \"device\" is not \"nvme\""));
}

TEST(GoodFiles, a_vocabulary_that_the_byte_tokenizer_does_not_have_is_said_not_to_be_needed) {
  const auto notes = [](const std::string& key) { return parse(kSmallest, {"optimizer.type=Lion", key}).notes; };
  EXPECT_THAT(notes("data.vocab_size=300"), testing::ElementsAre(testing::HasSubstr("the byte tokenizer has 256 ids")));
  EXPECT_TRUE(notes("data.vocab_size=256").empty());
  EXPECT_THAT(parse(kFull, {"data.vocab_size=300"}).notes,
              testing::Not(testing::Contains(testing::HasSubstr("256 ids"))));
}

TEST(GoodFiles, bytes_are_in_powers_of_1024_or_of_1000_as_their_unit_says) {
  const RunConfig config = parse(kSmallest, {"sluice.device_memory=12GB", "sluice.host_memory=12GiB"});
  EXPECT_EQ(config.sluice.device_memory_bytes, 12'000'000'000);
  EXPECT_EQ(config.sluice.host_memory_bytes, 12 * kGiB);
}

TEST(GoodFiles, what_a_loss_scale_that_stays_does_not_need_is_said) {
  const auto notes = [](const std::string& fp16) {
    return parse(kSmallest, {"optimizer.type=Lion", "fp16=" + fp16}).notes;
  };
  EXPECT_THAT(notes(R"({"enabled": true, "loss_scale": 128, "hysteresis": 3, "min_loss_scale": 2})"),
              testing::ElementsAre("not needed: \"fp16.hysteresis\", \"fp16.min_loss_scale\": \"fp16.loss_scale\" 128 "
                                   "stays as it is"));
  EXPECT_TRUE(notes(R"({"enabled": true, "loss_scale": 0, "hysteresis": 3})").empty());
  EXPECT_TRUE(notes(R"({"enabled": true, "loss_scale": 128})").empty());
  EXPECT_TRUE(notes(R"({"enabled": false, "loss_scale": 128, "hysteresis": 3})").empty());
}

TEST(GoodFiles, fp16_has_a_dynamic_loss_scale_with_the_incumbents_defaults) {
  const RunConfig config = parse(kSmallest, {"fp16.enabled=true"});
  EXPECT_EQ(config.precision, Precision::kFp16);
  EXPECT_EQ(config.loss_scale.kind, LossScaleOptions::Kind::kDynamic);
  EXPECT_EQ(config.loss_scale.first, 65536);
  EXPECT_EQ(config.loss_scale.least, 1);
  EXPECT_EQ(config.loss_scale.window, 1000);
  EXPECT_EQ(config.loss_scale.hysteresis, 2);
  EXPECT_EQ(config.loss_scale.patience, LossScaleOptions::Patience::kAnewWhenRaised);
}

TEST(GoodFiles, every_key_of_fp16_arrives_and_is_written_back) {
  const RunConfig config = parse(kSmallest, {R"(fp16={"enabled": true, "loss_scale": 0, "initial_scale_power": 9,
      "loss_scale_window": 50, "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 0.25})"});
  for (const LossScaleOptions& scale : {config.loss_scale, parse(to_json(config)).loss_scale}) {
    EXPECT_EQ(scale.kind, LossScaleOptions::Kind::kDynamic);
    EXPECT_EQ(scale.first, 512);
    EXPECT_EQ(scale.least, 0.25);
    EXPECT_EQ(scale.window, 50);
    EXPECT_EQ(scale.hysteresis, 3);
    EXPECT_EQ(scale.patience, LossScaleOptions::Patience::kAnewAfterGoodStep);
  }
  const RunConfig fixed = parse(kSmallest, {"fp16.enabled=true", "fp16.loss_scale=1000"});
  for (const RunConfig& each : {fixed, parse(to_json(fixed))}) {
    EXPECT_EQ(each.precision, Precision::kFp16);
    EXPECT_EQ(each.loss_scale.kind, LossScaleOptions::Kind::kStatic);
    EXPECT_EQ(each.loss_scale.first, 1000);
  }
}

TEST(GoodFiles, a_disabled_fp16_leaves_the_loss_alone) {
  const RunConfig config = parse(kFull, {R"(fp16={"enabled": false, "loss_scale": 128})"});
  EXPECT_EQ(config.precision, Precision::kBf16);
  EXPECT_EQ(config.loss_scale.kind, LossScaleOptions::Kind::kStatic);
  EXPECT_EQ(config.loss_scale.first, 1);
}

TEST(GoodFiles, a_group_has_what_it_says_and_else_what_the_run_has) {
  const RunConfig config = parse(kFull, {R"(optimizer.param_groups=[
      {"params": ["*.bias", "*.ln_*.weight"], "weight_decay": 0}, {"params": ["*"], "lr_factor": 0.5, "eps": 1e-5,
      "betas": [0.5, 0.75]}])"});
  for (const RunConfig& each : {config, parse(to_json(config))}) {
    ASSERT_EQ(each.param_groups.size(), 2u);
    const ParamGroupConfig &plain = each.param_groups[0], &quick = each.param_groups[1];
    EXPECT_THAT(plain.patterns, testing::ElementsAre("*.bias", "*.ln_*.weight"));
    EXPECT_EQ(plain.optimizer.kind, AdamKind::kAdam);
    EXPECT_EQ(plain.optimizer.weight_decay, 0);
    EXPECT_EQ(plain.optimizer.beta2, 0.95);
    EXPECT_EQ(plain.lr_factor, 1);
    EXPECT_EQ(quick.optimizer.weight_decay, 0.1);
    EXPECT_EQ(quick.optimizer.beta1, 0.5);
    EXPECT_EQ(quick.optimizer.beta2, 0.75);
    EXPECT_EQ(quick.optimizer.epsilon, 1e-5);
    EXPECT_EQ(quick.lr_factor, 0.5);
  }
  EXPECT_TRUE(parse(kFull).param_groups.empty());
}

TEST(GoodFiles, every_key_of_the_engines_own_section_arrives) {
  const SluiceConfig sluice = parse(kFull).sluice;
  EXPECT_EQ(sluice.device, DeviceKind::kHost);
  EXPECT_EQ(parse(kSmallest, {"sluice.device=cuda"}).sluice.device, DeviceKind::kCuda);
  EXPECT_EQ(sluice.device_memory_bytes, 2 * kMiB);
  EXPECT_EQ(sluice.host_memory_bytes, 3 * kMiB);
  EXPECT_THAT(sluice.nvme, testing::ElementsAre("/local_nvme"));
  EXPECT_EQ(sluice.chunk_elements, 1000);
  EXPECT_EQ(sluice.commit_interval, 5);
  EXPECT_EQ(sluice.update, UpdateMode::kDeferred);
  EXPECT_EQ(sluice.state_dtype, DType::kBf16);
  EXPECT_EQ(sluice.recompute, SluiceConfig::Recompute::kAlways);
  EXPECT_EQ(sluice.io_backend, IoBackend::kThreads);
  EXPECT_EQ(sluice.io_depth, 3);
  EXPECT_EQ(sluice.io_block_bytes, 256 * 1024);
  EXPECT_EQ(sluice.loss_tile_tokens, 16);
  EXPECT_EQ(sluice.compute_threads, 2);
  EXPECT_EQ(sluice.update_threads, 1);
  EXPECT_EQ(sluice.trace, "hops.json");
}

// The first chunks get the first home named: an order by name would put host before nvme+device.
TEST(GoodFiles, shares_of_a_placement_keep_the_order_of_the_file) {
  const Placement placement = parse(kFull).sluice.placement;
  ASSERT_EQ(placement.weights.size(), 3u);
  EXPECT_EQ(placement.weights[0].home, HomeKind::kNvmeAndDevice);
  EXPECT_EQ(placement.weights[0].share, 0.25);
  EXPECT_EQ(placement.weights[1].home, HomeKind::kHost);
  EXPECT_EQ(placement.weights[2].home, HomeKind::kNvme);
  ASSERT_EQ(placement.state.size(), 1u);
  EXPECT_EQ(placement.state[0].home, HomeKind::kHost);
  EXPECT_EQ(placement.gradient[0].home, HomeKind::kDevice);
  EXPECT_TRUE(placement.activations.empty());
}

TEST(GoodFiles, activations_are_placed_as_the_file_says) {
  const RunConfig config = parse(kSmallest, {"sluice.placement.activations=host"});
  for (const RunConfig& each : {config, parse(to_json(config))}) {
    ASSERT_EQ(each.sluice.placement.activations.size(), 1u);
    EXPECT_EQ(each.sluice.placement.activations[0].home, HomeKind::kHost);
  }
}

TEST(GoodFiles, state_may_be_at_home_on_the_device) {
  const Placement placement =
      parse(kSmallest, {R"(sluice.placement.state={"device": 0.3, "host": 0.3, "nvme": 0.4})",
                        "sluice.placement.weights=nvme+device", "sluice.placement.gradient=device"})
          .sluice.placement;
  ASSERT_EQ(placement.state.size(), 3u);
  EXPECT_EQ(placement.state[0].home, HomeKind::kDevice);
  EXPECT_EQ(placement.state[0].share, 0.3);
  EXPECT_EQ(parse(kSmallest, {R"(sluice.placement.state={"device": 0, "host": 1})", "sluice.placement.weights=host"})
                .sluice.placement.weights.size(),
            1u);
}

TEST(GoodFiles, any_two_batch_sizes_give_the_third) {
  struct Case {
    std::string keys;
    int64_t train, micro, accumulation;
  };
  const Case cases[] = {
      {R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 4)", 12, 4, 3},
      {R"("train_batch_size": 12, "gradient_accumulation_steps": 3)", 12, 4, 3},
      {R"("train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)", 12, 4, 3},
      {R"("train_batch_size": 12, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)", 12, 4, 3},
      {R"("train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3)", 12, 4,
       3},
      {R"("train_batch_size": 12)", 12, 12, 1},
      {R"("train_micro_batch_size_per_gpu": 4)", 4, 4, 1},
      {R"("train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto")", 4, 4, 1},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.keys);
    const BatchConfig batch =
        parse(R"({"model": {"type": "gpt2"}, "data": {"sequence_length": 8}, )" + each.keys + "}").batch;
    EXPECT_EQ(batch.train, each.train);
    EXPECT_EQ(batch.micro, each.micro);
    EXPECT_EQ(batch.accumulation, each.accumulation);
  }
}

TEST(GoodFiles, what_is_written_reads_back_as_the_same_configuration) {
  for (const std::string& text : {kSmallest, kFull}) {
    RunConfig config = parse(text);
    const std::string written = to_json(config);
    EXPECT_EQ(to_json(parse(written)), written);
    fill_defaults(config, {.available_host_bytes = 10 * kGiB, .cores = 3});
    const std::string resolved = to_json(config);
    RunConfig again = parse(resolved);
    EXPECT_EQ(to_json(again), resolved);
    // Another machine changes nothing of a resolved file.
    fill_defaults(again, {.available_host_bytes = 99 * kGiB, .cores = 64});
    EXPECT_EQ(to_json(again), resolved);
  }
}

// What reads back alike may have been left out: no key that a file gives is.
TEST(GoodFiles, every_key_that_a_file_gives_is_written) {
  const auto keys = [](const std::string& text) { return nlohmann::json::parse(text).flatten(); };
  RunConfig config = parse(kFull);
  const auto given = keys(kFull), written = keys(to_json(config));
  for (const auto& [key, value] : given.items()) {
    if (key == "/zero_optimization/stage") continue;  // said not to be needed
    EXPECT_TRUE(written.contains(key)) << key;
    // Bytes are written as a number, and what follows from other keys as what follows.
    if (key.ends_with("memory") || key.ends_with("io_block") || key.ends_with("accumulation_steps")) continue;
    EXPECT_EQ(written.value(key, nlohmann::json()), value) << key;
  }
}

TEST(GoodFiles, numbers_are_written_with_all_their_digits) {
  const RunConfig config = parse(kSmallest, {"optimizer.params.lr=0.00012345678901234567"});
  EXPECT_EQ(parse(to_json(config)).optimizer.learning_rate, 0.00012345678901234567);
}

TEST(GoodFiles, budgets_default_to_shares_of_the_memory_that_is_free) {
  RunConfig config = parse(kSmallest);
  fill_defaults(config, {.available_host_bytes = 1000 * kMiB, .cores = 3});
  EXPECT_EQ(config.sluice.device_memory_bytes, 200 * kMiB);
  EXPECT_EQ(config.sluice.host_memory_bytes, 500 * kMiB);
  EXPECT_EQ(config.sluice.compute_threads, 3);
  config = parse(kSmallest);
  fill_defaults(config, {.available_host_bytes = 1000 * kMiB, .free_gpu_bytes = 200 * kMiB, .cores = 3});
  EXPECT_EQ(config.sluice.device_memory_bytes, 160 * kMiB);
  EXPECT_EQ(config.sluice.host_memory_bytes, 500 * kMiB);
  config = parse(kFull);
  fill_defaults(config, {.available_host_bytes = 1000 * kMiB, .cores = 3});
  EXPECT_EQ(config.sluice.device_memory_bytes, 2 * kMiB);
  EXPECT_EQ(config.sluice.compute_threads, 2);
}

TEST(GoodFiles, budgets_and_threads_that_are_filled_in_are_whole_mib_and_one_at_the_least) {
  RunConfig config = parse(kSmallest);
  fill_defaults(config, {.available_host_bytes = 1000 * kMiB + 12345, .cores = 1});
  EXPECT_EQ(config.sluice.device_memory_bytes, 200 * kMiB);
  EXPECT_EQ(config.sluice.host_memory_bytes, 500 * kMiB);
  config = parse(kSmallest);
  fill_defaults(config, {.available_host_bytes = 1000, .cores = 0});
  EXPECT_EQ(config.sluice.device_memory_bytes, kMiB);
  EXPECT_EQ(config.sluice.host_memory_bytes, kMiB);
  EXPECT_EQ(config.sluice.compute_threads, 1);
  EXPECT_EQ(config.sluice.update_threads, 1);
}

TEST(GoodFiles, a_seed_that_is_not_given_is_written_as_the_zero_that_it_is) {
  const RunConfig config = parse(kSmallest);
  EXPECT_FALSE(config.seed.has_value());
  EXPECT_EQ(config.seed_or_default(), 0u);
  EXPECT_EQ(parse(to_json(config)).seed, 0u);
}

TEST(GoodFiles, the_smallest_vocabulary_of_ids_is_written_and_read_back) {
  const RunConfig config = parse(kSmallest, {"data.tokenizer=ids", "data.vocab_size=1"});
  EXPECT_EQ(config.data.vocab_size, 1);
  EXPECT_EQ(parse(to_json(config)).data.vocab_size, 1);
}

TEST(GoodFiles, update_threads_leave_a_core_for_the_drives_and_one_for_the_compute) {
  const auto threads = [](std::vector<std::string> overrides, int cores) {
    RunConfig config = parse(kSmallest, std::move(overrides));
    fill_defaults(config, {.available_host_bytes = 1000 * kMiB, .cores = cores});
    return config.sluice.update_threads;
  };
  EXPECT_EQ(threads({}, 16), 14);
  EXPECT_EQ(threads({R"(sluice.update_threads="auto")", R"(sluice.nvme=["/a"])"}, 16), 14);
  EXPECT_EQ(threads({R"(sluice.nvme=["/a", "/b", "/c", "/d"])"}, 16), 14);
  EXPECT_EQ(threads({}, 2), 1);
  EXPECT_EQ(threads({}, 1), 1);
  EXPECT_EQ(threads({"sluice.update_threads=5"}, 16), 5);
}

TEST(GoodFiles, overrides_replace_add_and_nest_and_later_ones_win) {
  const RunConfig config =
      parse(kFull, {"sluice.host_memory=64MiB", "sluice.nvme=[\"/a=b\"]", "data.path=/new place", "model.n_head=3",
                    "sluice.placement.state={\"nvme\": 0.5, \"host\": 0.5}", "steps_per_print=1", "steps_per_print=2"});
  EXPECT_EQ(config.sluice.host_memory_bytes, 64 * kMiB);
  EXPECT_THAT(config.sluice.nvme, testing::ElementsAre("/a=b"));
  EXPECT_EQ(config.data.path, "/new place");
  EXPECT_EQ(config.model, R"({"type":"gpt2","n_embd":72,"n_layer":5,"n_head":3})");
  EXPECT_EQ(config.sluice.placement.state.size(), 2u);
  EXPECT_EQ(config.steps_per_print, 2);
  EXPECT_EQ(parse(kSmallest, {"optimizer.params.lr=1e-2"}).optimizer.learning_rate, 1e-2);
}

TEST(GoodFiles, whole_numbers_may_be_written_as_powers_of_ten) {
  EXPECT_EQ(parse(kSmallest, {"sluice.chunk_elements=1e6"}).sluice.chunk_elements, 1000000);
}

TEST(GoodFiles, the_presets_load) {
  const RunConfig demo = load_config(std::string(SLUICE_PRESETS) + "/demo.json", {});
  EXPECT_EQ(demo.sluice.device_memory_bytes, 64 * kMiB);
  EXPECT_EQ(demo.sluice.host_memory_bytes, 128 * kMiB);
  EXPECT_EQ(demo.batch.micro, 4);
  EXPECT_EQ(demo.data.sequence_length, 256);
  EXPECT_EQ(demo.data.vocab_size, 4096);
  EXPECT_EQ(demo.precision, Precision::kBf16);
  const RunConfig small = load_config(std::string(SLUICE_PRESETS) + "/gpt2_small_nvme.json", {});
  EXPECT_EQ(small.sluice.device_memory_bytes, 512 * kMiB);
  EXPECT_EQ(small.sluice.host_memory_bytes, 512 * kMiB);
}

}  // namespace
}  // namespace sluice
