#include "configs/deepspeed_keys.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr DeepSpeedKey::Fate kNotNeeded = DeepSpeedKey::Fate::kNotNeeded, kNotThere = DeepSpeedKey::Fate::kNotThere;

constexpr std::string_view kOneRank = "one rank has all of the state and exchanges nothing";
constexpr std::string_view kBudgets = "sluice.device_memory and host_memory decide where bytes are and when they move";
constexpr std::string_view kPlanned = "offsets are planned before the first step, and blocks are what is fetched";
constexpr std::string_view kUpdateThreads = "sluice.update_threads sets the threads of the update";
constexpr std::string_view kRequests =
    "requests are tuned by a probe; sluice.io_backend, io_block and io_depth set them";
constexpr std::string_view kMetrics = "the run's metrics.jsonl has each step's numbers, lanes and memory";
constexpr std::string_view kMonitors =
    "of the monitors tensorboard alone is written; the run's metrics.jsonl has their numbers";
constexpr std::string_view kExport = "sluice checkpoint export writes the weights";
constexpr std::string_view kStore = "the run's store has all of its state, and --resume goes on from it";
constexpr std::string_view kFinite = "a step with a gradient that is not finite is always skipped";
constexpr std::string_view kMixed = "automatic mixed precision; use bf16, fp16, or fp32";
constexpr std::string_view kOwnUpdate = "the update is the engine's own";
constexpr std::string_view kMoments = "moments in the weights' type; sluice.state_dtype \"bf16\" has them in bf16";
constexpr std::string_view kCheckpoints =
    "what a block takes in is its checkpoint; sluice.recompute and sluice.placement.activations set the rest";
constexpr std::string_view kOtherCheckpoints = "checkpoints by others; the run's store is committed as it trains";
constexpr std::string_view kSeveralRanks = "several ranks";
constexpr std::string_view kCompiler = "a compiler of the model";
constexpr std::string_view kCompilers = "it is for a compiler of the model, which is not there";

// Those of DeepSpeed 0.19.5's configuration classes (deepspeed/runtime/config.py and what it reads), of its
// documentation (docs/_pages/config-json.md), and older ones that still are in people's files.
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
    {"zero_optimization.offload_optimizer.super_offload", kNotNeeded, kBudgets},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kNotNeeded, kUpdateThreads},
    {"zero_optimization.offload_param.pin_memory", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.buffer_count", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.buffer_size", kNotNeeded, kBudgets},
    {"zero_optimization.offload_param.max_in_cpu", kNotNeeded, kBudgets},
    {"zero_optimization.cpu_offload", kNotNeeded, kBudgets},
    {"zero_optimization.cpu_offload_param", kNotNeeded, kBudgets},
    {"zero_optimization.cpu_offload_params", kNotNeeded, kBudgets},
    {"zero_optimization.cpu_offload_use_pin_memory", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_prefetch_bucket_size", kNotNeeded, kBudgets},
    {"zero_optimization.prefetch_bucket_size", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_param_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.param_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_model_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.model_persistence_threshold", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_max_live_parameters", kNotNeeded, kBudgets},
    {"zero_optimization.max_live_parameters", kNotNeeded, kBudgets},
    {"zero_optimization.stage3_max_reuse_distance", kNotNeeded, kBudgets},
    {"zero_optimization.max_reuse_distance", kNotNeeded, kBudgets},
    {"zero_optimization.contiguous_gradients", kNotNeeded, kPlanned},
    {"zero_optimization.stage3_module_granularity_threshold", kNotNeeded, kPlanned},
    {"zero_optimization.module_granularity_threshold", kNotNeeded, kPlanned},
    {"zero_optimization.leaf_module", kNotNeeded, kPlanned},
    {"zero_optimization.memory_efficient_linear", kNotNeeded, kPlanned},
    {"zero_optimization.override_module_apply", kNotNeeded, kPlanned},
    {"zero_optimization.log_trace_cache_warnings", kNotNeeded, kPlanned},
    {"zero_optimization.enable_sanity_checks", kNotNeeded, kPlanned},
    {"zero_optimization.grad_hooks", kNotNeeded, kPlanned},
    {"zero_optimization.sub_group_size", kNotNeeded, "sluice.chunk_elements is the unit of the update"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNotNeeded, kExport},
    {"zero_optimization.gather_16bit_weights_on_model_save", kNotNeeded, kExport},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNotNeeded, kExport},
    {"zero_optimization.overlap_comm", kNotNeeded, kOneRank},
    {"zero_optimization.allgather_partitions", kNotNeeded, kOneRank},
    {"zero_optimization.allgather_bucket_size", kNotNeeded, kOneRank},
    {"zero_optimization.reduce_scatter", kNotNeeded, kOneRank},
    {"zero_optimization.reduce_bucket_size", kNotNeeded, kOneRank},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNotNeeded, kOneRank},
    {"zero_optimization.round_robin_gradients", kNotNeeded, kOneRank},
    {"zero_optimization.legacy_stage1", kNotNeeded, kOneRank},
    {"zero_optimization.zero_hpz_partition_size", kNotNeeded, kOneRank},
    {"zero_optimization.zeropp_loco_param", kNotNeeded, kOneRank},
    {"zero_optimization.mics_shard_size", kNotNeeded, kOneRank},
    {"zero_optimization.mics_hierarchical_params_gather", kNotNeeded, kOneRank},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNotNeeded, kOneRank},
    {"zero_optimization.use_all_reduce_for_fetch_params", kNotNeeded, kOneRank},
    {"zero_optimization.stage3_allgather_sequential", kNotNeeded, kOneRank},
    {"zero_optimization.allgather_sequential", kNotNeeded, kOneRank},
    {"zero_optimization.load_from_fp32_weights", kNotNeeded, kStore},
    {"zero_optimization.elastic_checkpoint", kNotNeeded, kStore},
    {"zero_optimization.pipeline_loading_checkpoint", kNotNeeded, kStore},
    {"zero_optimization.ignore_unused_parameters", kNotNeeded, "every parameter of a model is used"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kNotNeeded, "it is for Muon, which is not there"},
    {"zero_optimization.zero_quantized_weights", kNotThere, kSeveralRanks},
    {"zero_optimization.zero_quantized_gradients", kNotThere, kSeveralRanks},
    {"zero_optimization.zero_quantized_nontrainable_weights", kNotThere, "weights in 8 bits"},
    {"zero_optimization.zenflow", kNotThere, "ZenFlow"},
    {"communication_data_type", kNotNeeded, kOneRank},
    {"seq_parallel_communication_data_type", kNotNeeded, kOneRank},
    {"seq_parallel_comm_data_type", kNotNeeded, kOneRank},  // its name before 0.16.5
    {"prescale_gradients", kNotNeeded, kOneRank},
    {"gradient_predivide_factor", kNotNeeded, kOneRank},
    {"gradient_allreduce_op", kNotNeeded, kOneRank},
    {"fp32_allreduce", kNotNeeded, kOneRank},
    {"disable_allgather", kNotNeeded, kOneRank},
    {"allgather_size", kNotNeeded, kOneRank},
    {"use_data_before_expert_parallelism", kNotNeeded, kOneRank},
    {"comms_logger", kNotNeeded, kOneRank},
    {"aio.block_size", kNotNeeded, kRequests},
    {"aio.queue_depth", kNotNeeded, kRequests},
    {"aio.thread_count", kNotNeeded, kRequests},
    {"aio.intra_op_parallelism", kNotNeeded, kRequests},
    {"aio.single_submit", kNotNeeded, kRequests},
    {"aio.overlap_events", kNotNeeded, kRequests},
    {"aio.use_gds", kNotThere, "GPUDirect Storage"},
    {"activation_checkpointing.partition_activations", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.cpu_checkpointing", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.contiguous_memory_optimization", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.number_checkpoints", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kNotNeeded, kCheckpoints},
    {"activation_checkpointing.profile", kNotNeeded, kCheckpoints},
    {"wall_clock_breakdown", kNotNeeded, kMetrics},
    {"memory_breakdown", kNotNeeded, kMetrics},
    {"timers", kNotNeeded, kMetrics},
    {"wandb", kNotNeeded, kMonitors},
    {"csv_monitor", kNotNeeded, kMonitors},
    {"comet", kNotNeeded, kMonitors},
    {"dump_state", kNotNeeded, "the run's config.json has the configuration"},
    {"log_level", kNotNeeded, "the log is the engine's own"},
    {"vocabulary_size", kNotNeeded, "the model has its own"},
    {"dataloader_drop_last", kNotNeeded, "every step has train_batch_size samples"},
    {"bf16.check_grad_overflow", kNotNeeded, kFinite},
    {"bf16.check_overflow", kNotNeeded, kFinite},
    {"bf16.immediate_grad_update", kNotNeeded, kOwnUpdate},
    {"bf16.bf16_master_weights_and_grads", kNotThere, "masters in bf16; they are fp32"},
    {"bf16.bf16_optimizer_states", kNotThere, kMoments},
    {"bfloat16", DeepSpeedKey::Fate::kRenamed, "bf16"},
    {"zero_allow_untested_optimizer", kNotNeeded, kOwnUpdate},
    {"zero_force_ds_cpu_optimizer", kNotNeeded, kOwnUpdate},
    {"optimizer.legacy_fusion", kNotNeeded, kOwnUpdate},
    {"optimizer.params.torch_adam", kNotNeeded, kOwnUpdate},
    {"optimizer.params.fused", kNotNeeded, kOwnUpdate},
    {"optimizer.params.foreach", kNotNeeded, kOwnUpdate},
    {"optimizer.params.set_grad_none", kNotNeeded, kOwnUpdate},
    {"graph_harvesting", kNotNeeded, kOwnUpdate},
    {"optimizer.params.bias_correction", kNotThere, "updates without bias correction", "true"},
    {"optimizer.params.amsgrad", kNotThere, "AMSGrad"},
    {"optimizer.params.maximize", kNotThere, "ascent"},
    {"optimizer.params.nesterov", kNotThere, "Nesterov's momentum"},
    {"optimizer.params.dampening", kNotThere, "damped momentum", "0"},
    {"optimizer.params.fp32_optimizer_states", kNotThere, kMoments, "true"},
    {"optimizer.params.max_grad_norm", kNotThere, "clipping by the optimizer; \"gradient_clipping\" clips", "0"},
    {"optimizer.param_groups.lr", kNotThere, "a rate beside the schedule's; lr_factor multiplies the schedule's"},
    {"scheduler.params.last_batch_iteration", kNotThere, "a schedule that begins later; a resumed run goes on in it",
     "-1"},
    {"amp", kNotThere, kMixed},
    {"torch_autocast", kNotThere, kMixed},
    {"fp16.auto_cast", kNotThere, "casts of the model's inputs; they are token ids"},
    {"fp16.fp16_master_weights_and_grads", kNotThere, "masters in fp16; they are fp32"},
    {"data_types.grad_accum_dtype", kNotThere, "sums of gradients in another type; they are fp32", "\"fp32\""},
    {"data_types.param_dtype", kNotThere, "weights in another type than bf16 and fp16 say"},
    {"data_types.buffer_dtype", kNotThere, "buffers in a type of their own"},
    {"managed_gradient_accumulation", kNotThere, "steps that the caller ends", "true"},
    {"sparse_gradients", kNotThere, "sparse gradients"},
    {"sparse_attention", kNotThere, "sparse attention"},
    {"flops_profiler", kNotThere, "a profiler of floating-point operations"},
    {"checkpoint.use_node_local_storage", kNotNeeded, kStore},
    {"checkpoint.parallel_write", kNotNeeded, kStore},
    {"checkpoint.writer", kNotNeeded, kStore},
    {"checkpoint.checkpoint_serialization", kNotNeeded, kStore},
    {"checkpoint.tag_validation", kNotNeeded, kOneRank},
    {"checkpoint.load_universal", kNotThere, "universal checkpoints"},
    {"nebula", kNotThere, kOtherCheckpoints},
    {"datastates_ckpt", kNotThere, kOtherCheckpoints},
    {"data_efficiency", kNotThere, "curricula"},
    {"curriculum_learning", kNotThere, "curricula"},
    {"progressive_layer_drop", kNotThere, "layers that are left out at random"},
    {"eigenvalue", kNotThere, "eigenvalues"},
    {"elasticity", kNotThere, kSeveralRanks},
    {"pipeline", kNotThere, kSeveralRanks},
    {"tensor_parallel.autotp_size", kNotThere, kSeveralRanks, "[0, 1]"},
    {"tensor_parallel.dtype", kNotNeeded, kOneRank},
    {"tensor_parallel.tp_overlap_comm", kNotNeeded, kOneRank},
    {"tensor_parallel.tensor_parallel", kNotNeeded, kOneRank},
    {"tensor_parallel.tp", kNotNeeded, kOneRank},
    {"tensor_parallel.injection_policy_tuple", kNotNeeded, kOneRank},
    {"tensor_parallel.partition_config", kNotNeeded, kOneRank},
    {"tensor_parallel.preset_model", kNotNeeded, kOneRank},
    {"tensor_parallel.keep_module_on_host", kNotNeeded, kOneRank},
    {"tensor_parallel.replace_with_kernel_inject", kNotNeeded, kOneRank},
    {"tensor_parallel.kernel_inject", kNotNeeded, kOneRank},
    {"sequence_parallel_size", kNotThere, kSeveralRanks, "1"},
    {"data_parallel_size", kNotThere, kSeveralRanks, "1"},
    {"expert_parallel", kNotThere, "layers of experts"},
    {"hybrid_engine", kNotThere, "generation within training; sluice generate is there"},
    {"autotuning", kNotThere, "DeepSpeed's tuner; sluice tune is there"},
    {"compression_training", kNotThere, "compression"},
    {"weight_quantization", kNotThere, "compression"},
    {"quantize_training", kNotThere, "compression"},
    {"compile.deepcompile", kNotThere, kCompiler},
    {"compile.enabled", kNotThere, kCompiler},
    {"compile.offload_activation", kNotThere, kCompiler},
    {"compile.passes", kNotThere, kCompiler, "[[]]"},
    {"compile.backend", kNotNeeded, kCompilers},
    {"compile.kwargs", kNotNeeded, kCompilers},
    {"compile.free_activation", kNotNeeded, kCompilers},
    {"compile.free_activation_threshold", kNotNeeded, kCompilers},
    {"compile.offload_activation_pin_memory", kNotNeeded, kCompilers},
    {"compile.offload_opt_states", kNotNeeded, kCompilers},
    {"compile.double_buffer", kNotNeeded, kCompilers},
    {"compile.symmetric_memory", kNotNeeded, kCompilers},
    {"compile.debug_log", kNotNeeded, kCompilers},
    {"compile.offload_parameters", kNotNeeded, kCompilers},
    {"compile.sync_before_reduce", kNotNeeded, kCompilers},
    {"compile.sync_after_reduce", kNotNeeded, kCompilers},
    {"compile.sync_before_allgather", kNotNeeded, kCompilers},
    {"compile.sync_after_allgather", kNotNeeded, kCompilers},
    {"compile.keep_int_input_tensors", kNotNeeded, kCompilers},
    {"compile.keep_all_input_tensors", kNotNeeded, kCompilers},
    {"crc32c", kNotNeeded, "a run checks its own config.json by it"},  // of ours
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
