// The way back: typed values to JSON text, and the names and defaults that both ways share.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "configs/run_config.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json count_or_auto(int64_t count) { return count > 0 ? Json(count) : Json("auto"); }

Json homes_json(const HomeShares& shares) {
  if (shares.empty()) return "auto";
  if (shares.size() == 1 && shares[0].share == 1) return std::string(name_of(shares[0].home));
  Json object = Json::object();
  for (const HomeShare& share : shares) object[std::string(name_of(share.home))] = share.share;
  return object;
}

Json data_json(const DataOptions& data) {
  Json object = Json::object();
  if (!data.path.empty()) object["path"] = data.path.string();
  object["tokenizer"] = std::string(name_of(data.tokenizer));
  if (data.vocab_size > 0) object["vocab_size"] = data.vocab_size;
  object["sequence_length"] = data.sequence_length;
  object["shuffle"] = data.shuffle == Shuffle::kYes;
  object["validation_fraction"] = data.validation_fraction;
  return object;
}

Json sluice_json(const SluiceConfig& sluice) {
  Json object = Json::object();
  object["device"] = std::string(name_of(sluice.device));
  if (sluice.device_memory_bytes > 0) object["device_memory"] = sluice.device_memory_bytes;
  if (sluice.host_memory_bytes > 0) object["host_memory"] = sluice.host_memory_bytes;
  object["nvme"] = sluice.nvme;
  object["chunk_elements"] = count_or_auto(sluice.chunk_elements);
  object["commit_interval"] = count_or_auto(sluice.commit_interval);
  object["io_backend"] = std::string(name_of(sluice.io_backend));
  if (sluice.io_block_bytes > 0) object["io_block"] = sluice.io_block_bytes;
  object["io_depth"] = sluice.io_depth;
  object["placement"] = {{"weights", homes_json(sluice.placement.weights)},
                         {"state", homes_json(sluice.placement.state)},
                         {"gradient", homes_json(sluice.placement.gradient)},
                         {"activations", homes_json(sluice.placement.activations)}};
  object["update"] = std::string(name_of(sluice.update));
  object["recompute"] = sluice.recompute == SluiceConfig::Recompute::kAuto ? "auto" : "always";
  object["state_dtype"] = std::string(name_of(sluice.state_dtype));
  object["loss_tile_tokens"] = count_or_auto(sluice.loss_tile_tokens);
  object["compute_threads"] = count_or_auto(sluice.compute_threads);
  object["update_threads"] = count_or_auto(sluice.update_threads);
  if (!sluice.trace.empty()) object["trace"] = sluice.trace;
  return object;
}

// What the run and its groups both have.
void add_hyper_parameters(const AdamOptions& options, Json& params) {
  const bool adam = optimizer_of(options.kind) == Optimizer::kAdam;
  if (adam || options.kind == AdamKind::kLion) params["betas"] = Json::array({options.beta1, options.beta2});
  if (adam || options.kind == AdamKind::kAdagrad) params["eps"] = options.epsilon;
  if (options.kind == AdamKind::kSgd) params["momentum"] = options.momentum;
  params["weight_decay"] = options.weight_decay;
}

Json optimizer_json(const RunConfig& config) {
  const AdamOptions& options = config.optimizer;
  const std::string type(options.kind == AdamKind::kAdamW ? "AdamW" : name_of(optimizer_of(options.kind)));
  Json params = {{"lr", options.learning_rate}};
  add_hyper_parameters(options, params);
  if (options.kind == AdamKind::kAdam) params["adam_w_mode"] = false;  // the type alone would be AdamW
  Json object = {{"type", type}, {"params", params}};
  for (const ParamGroupConfig& group : config.param_groups) {
    Json keys = {{"params", group.patterns}, {"lr_factor", group.lr_factor}};
    add_hyper_parameters(group.optimizer, keys);
    object["param_groups"].push_back(keys);
  }
  return object;
}

Json scheduler_json(const ScheduleConfig& schedule) {
  Json params = {{"warmup_num_steps", schedule.warmup_steps},
                 {"warmup_type", schedule.shape == WarmupShape::kLog ? "log" : "linear"}};
  if (schedule.kind == ScheduleKind::kWarmupCosine) {
    params["warmup_min_ratio"] = schedule.min_ratio;
    params["cos_min_ratio"] = schedule.end_ratio;
  } else {
    params["warmup_min_lr"] = schedule.min_lr;
    params["warmup_max_lr"] = schedule.max_lr;
  }
  if (schedule.kind != ScheduleKind::kWarmup) params["total_num_steps"] = schedule.total_steps;
  return {{"type", std::string(name_of(schedule.kind))}, {"params", params}};
}

Json fp16_json(const RunConfig& config) {
  if (config.precision != Precision::kFp16) return {{"enabled", false}};
  const LossScaleOptions& scale = config.loss_scale;
  if (scale.kind == LossScaleOptions::Kind::kStatic) return {{"enabled", true}, {"loss_scale", scale.first}};
  return {{"enabled", true},
          {"loss_scale", 0},
          {"initial_scale_power", std::lround(std::log2(scale.first))},
          {"loss_scale_window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"consecutive_hysteresis", scale.patience == LossScaleOptions::Patience::kAnewAfterGoodStep},
          {"min_loss_scale", scale.least}};
}

}  // namespace

std::string_view name_of(IoBackend backend) {
  return backend == IoBackend::kAuto ? "auto" : backend == IoBackend::kUring ? "uring" : "threads";
}

std::string_view name_of(DeviceKind device) {
  return device == DeviceKind::kAuto ? "auto" : device == DeviceKind::kCuda ? "cuda" : "cpu";
}

void fill_defaults(RunConfig& config, const MachineFacts& machine) {
  SluiceConfig& sluice = config.sluice;
  // Whole MiB: people read these numbers back in the table.
  constexpr int64_t kGrain = int64_t{1} << 20;
  const auto share = [kGrain](int64_t percent, int64_t bytes) {
    return std::max(kGrain, bytes / 100 * percent / kGrain * kGrain);
  };
  if (sluice.device_memory_bytes == 0) {
    sluice.device_memory_bytes =
        machine.free_gpu_bytes > 0 ? share(80, machine.free_gpu_bytes) : share(20, machine.available_host_bytes);
  }
  if (sluice.host_memory_bytes == 0) sluice.host_memory_bytes = share(50, machine.available_host_bytes);
  if (sluice.compute_threads == 0) sluice.compute_threads = std::max(1, machine.cores);
  // One core for the thread that serves all drives and one for the thread that computes; the update has the others.
  if (sluice.update_threads == 0) sluice.update_threads = std::max(1, machine.cores - 2);
}

std::string to_json(const RunConfig& config) {
  Json object = Json::object();
  object["model"] = Json::parse(config.model);
  object["data"] = data_json(config.data);
  object["train_batch_size"] = config.batch.train;
  object["train_micro_batch_size_per_gpu"] = config.batch.micro;
  object["gradient_accumulation_steps"] = config.batch.accumulation;
  object["optimizer"] = optimizer_json(config);
  if (config.schedule.kind != ScheduleKind::kConstant) object["scheduler"] = scheduler_json(config.schedule);
  object["gradient_clipping"] = config.gradient_clipping;
  object["bf16"] = {{"enabled", config.precision == Precision::kBf16}};
  object["fp16"] = fp16_json(config);
  object["steps_per_print"] = config.steps_per_print;
  object["seed"] = config.seed_or_default();
  if (config.endurance.terabytes_written > 0) {
    object["endurance"] = {{"terabytes_written", config.endurance.terabytes_written}, {"days", config.endurance.days}};
  }
  if (const std::filesystem::path folder = config.tensorboard; !folder.empty()) {
    const std::string name = folder.filename().string();  // empty: the root
    object["tensorboard"] = {
        {"enabled", true}, {"output_path", folder.parent_path().string()}, {"job_name", name.empty() ? "." : name}};
  }
  object["sluice"] = sluice_json(config.sluice);
  return object.dump(2) + "\n";
}

}  // namespace sluice
