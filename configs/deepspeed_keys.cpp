#include "configs/deepspeed_keys.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr DeepSpeedKey::Fate kNotNeeded = DeepSpeedKey::Fate::kNotNeeded, kNotThere = DeepSpeedKey::Fate::kNotThere;

constexpr std::string_view kOneRank = "one rank has all of the state and exchanges nothing";
constexpr std::string_view kBudgets = "sluice.device_memory and host_memory decide where bytes are and when they move";
constexpr std::string_view kRequests =
    "requests are tuned by a probe; sluice.io_backend, io_block and io_depth set them";
constexpr std::string_view kMetrics = "the run's metrics.jsonl has each step's numbers, lanes and memory";
constexpr std::string_view kMonitors = "no files of a monitor are written; the run's metrics.jsonl has their numbers";
constexpr std::string_view kExport = "sluice checkpoint export writes the weights";
constexpr std::string_view kMixed = "automatic mixed precision; use bf16, fp16, or fp32";
constexpr std::string_view kOwnUpdate = "the update is the engine's own";
constexpr std::string_view kCheckpoints =
    "what a block takes in is its checkpoint; sluice.recompute and sluice.placement.activations set the rest";
constexpr std::string_view kSeveralRanks = "several ranks";

constexpr DeepSpeedKey kDeepSpeedKeys[] = {
    {"zero_optimization.stage", kNotNeeded, kOneRank},
    {"zero_optimization.offload_optimizer.device", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.device", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.pin_memory", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.buffer_count", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.fast_init", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.pipeline", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.pipeline_read", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.pipeline_write", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.ratio", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.pin_memory", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.buffer_count", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.buffer_size", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.max_in_cpu", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_prefetch_bucket_size", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_param_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_model_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_max_live_parameters", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_max_reuse_distance", kNotNeeded, kBudgets},
    {"zero_optimization.sub_group_size", kNotNeeded, "sluice.chunk_elements is the unit of the update"},
    {"zero_optimization.contiguous_gradients", kNotNeeded, "offsets are planned before the first step"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNotNeeded, kExport},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNotNeeded, kExport},
    {"zero_optimization.overlap_comm", kNotNeeded, kOneRank},
    {"zero_optimization.allgather_partitions", kNotNeeded, kOneRank},
    {"zero_optimization.allgather_bucket_size", kNotNeeded, kOneRank},
    {"zero_optimization.reduce_scatter", kNotNeeded, kOneRank},
    {"zero_optimization.reduce_bucket_size", kNotNeeded, kOneRank},
    {"zero_optimization.round_robin_gradients", kNotNeeded, kOneRank},
    {"zero_optimization.zero_hpz_partition_size", kNotNeeded, kOneRank},
    {"communication_data_type", kNotNeeded, kOneRank},
    {"prescale_gradients", kNotNeeded, kOneRank},
    {"gradient_predivide_factor", kNotNeeded, kOneRank},
    {"comms_logger", kNotNeeded, kOneRank},
    {"aio.block_size", kNotNeeded, kRequests},
    {"aio.queue_depth", kNotNeeded, kRequests},
    {"aio.thread_count", kNotNeeded, kRequests},
    {"aio.intra_op_parallelism", kNotNeeded, kRequests},
    {"aio.single_submit", kNotNeeded, kRequests},
    {"aio.overlap_events", kNotNeeded, kRequests},
    {"activation_checkpointing.partition_activations", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.cpu_checkpointing", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.contiguous_memory_optimization", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.number_checkpoints", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.profile", kNotNeeded, kCheckpoints},
    {"wall_clock_breakdown", kNotNeeded, kMetrics},
    {"memory_breakdown", kNotNeeded, kMetrics},
    {"tensorboard", kNotNeeded, kMonitors},
    {"wandb", kNotNeeded, kMonitors},
    {"csv_monitor", kNotNeeded, kMonitors},
    {"comet", kNotNeeded, kMonitors},
    {"dump_state", kNotNeeded, "the run's config.json has the configuration"},
    {"bf16.immediate_grad_update", kNotNeeded, kOwnUpdate},
    {"zero_allow_untested_optimizer", kNotNeeded, kOwnUpdate},
    {"zero_force_ds_cpu_optimizer", kNotNeeded, kOwnUpdate},
    {"optimizer.legacy_fusion", kNotNeeded, kOwnUpdate},
    {"optimizer.params.torch_adam", kNotNeeded, kOwnUpdate},
    {"optimizer.params.fused", kNotNeeded, kOwnUpdate},
    {"optimizer.params.bias_correction", kNotThere, "updates without bias correction", "true"},
    {"optimizer.params.amsgrad", kNotThere, "AMSGrad"},
    {"optimizer.param_groups.lr", kNotThere, "a rate beside the schedule's; lr_factor multiplies the step's"},
    {"amp", kNotThere, kMixed},
    {"torch_autocast", kNotThere, kMixed},
    {"fp16.auto_cast", kNotThere, "the key; the model and its inputs are fp16"},
    {"fp16.fp16_master_weights_and_grads", kNotThere, "masters in fp16; they are fp32"},
    {"data_types", kNotThere, "another type of gradients"},
    {"sparse_gradients", kNotThere, "sparse gradients"},
    {"sparse_attention", kNotThere, "sparse attention"},
    {"flops_profiler", kNotThere, "the profiler of operations"},
    {"checkpoint", kNotThere, "checkpoint options; the run's store is committed as it trains"},
    {"data_efficiency", kNotThere, "curricula"},
    {"curriculum_learning", kNotThere, "curricula"},
    {"elasticity", kNotThere, kSeveralRanks},
    {"autotuning", kNotThere, "the tuner; sluice tune is there"},
    {"compression_training", kNotThere, "compression"},
    {"zero_optimization.zero_quantized_weights", kNotThere, kSeveralRanks},
    {"zero_optimization.zero_quantized_gradients", kNotThere, kSeveralRanks},
};

}  // namespace

std::span<const DeepSpeedKey> deepspeed_keys() { return kDeepSpeedKeys; }

const DeepSpeedKey* find_deepspeed_key(std::string_view path) {
  const auto* found = std::ranges::find(kDeepSpeedKeys, path, &DeepSpeedKey::path);
  return found == std::end(kDeepSpeedKeys) ? nullptr : found;
}

bool is_deepspeed_section(std::string_view path) {
  return std::ranges::any_of(kDeepSpeedKeys, [path](const DeepSpeedKey& key) {
    return key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.';
  });
}

}  // namespace sluice
