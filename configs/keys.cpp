#include "configs/keys.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/nearest_name.h"

namespace sluice {
namespace {

constexpr std::string_view kBytes = "bytes, as \"12GiB\" or a positive integer";
constexpr std::string_view kCountOrAuto = "a positive integer or \"auto\"";
constexpr std::string_view kThreadsOrAuto = "an integer from 1 to 1024, or \"auto\"";
constexpr std::string_view kHomes = "a home (\"auto\", \"host\", ...) or shares as {\"host\": 0.5, \"nvme\": 0.5}";

constexpr KeyInfo kKeys[] = {
    {"model", KeyKind::kOpenSection, "an object, as {\"type\": \"gpt2\", ...} or {\"path\": \"FOLDER\"}"},
    {"data", KeyKind::kSection, "an object"},
    {"data.path", KeyKind::kValue, "a file or folder of UTF-8 text"},
    {"data.tokenizer", KeyKind::kValue, "\"byte\" or \"sentencepiece\""},
    {"data.vocab_size", KeyKind::kValue, "an integer, 300 to 1000000 for sentencepiece, 256 or more for byte"},
    {"data.sequence_length", KeyKind::kValue, "a positive integer"},
    {"data.shuffle", KeyKind::kValue, "true or false"},
    {"data.validation_fraction", KeyKind::kValue, "a number from 0 to below 1"},
    {"train_batch_size", KeyKind::kValue, kCountOrAuto},
    {"train_micro_batch_size_per_gpu", KeyKind::kValue, "an integer from 1 to 1048576, or \"auto\""},
    {"gradient_accumulation_steps", KeyKind::kValue, "an integer from 1 to 65536, or \"auto\""},
    {"optimizer", KeyKind::kSection, "an object"},
    {"optimizer.type", KeyKind::kValue, "\"AdamW\", \"Adam\", \"Adagrad\", \"Lion\" or \"SGD\""},
    {"optimizer.params", KeyKind::kSection, "an object"},
    {"optimizer.params.lr", KeyKind::kValue, "a number, 0 or more"},
    {"optimizer.params.betas", KeyKind::kValue, "a list of two numbers from 0 to below 1"},
    {"optimizer.params.eps", KeyKind::kValue, "a number above 0, 1.2e-38 at the least as in fp32"},
    {"optimizer.params.momentum", KeyKind::kValue, "a number from 0 to below 1, for SGD"},
    {"optimizer.params.weight_decay", KeyKind::kValue, "a number, 0 or more"},
    {"optimizer.param_groups", KeyKind::kList,
     "a list of objects, as [{\"params\": [\"*.bias\", \"*.ln_*.weight\"], \"weight_decay\": 0}]"},
    {"optimizer.param_groups.params", KeyKind::kValue, "a list of patterns of parameters' names, as [\"*.bias\"]"},
    {"optimizer.param_groups.lr_factor", KeyKind::kValue, "a number, 0 or more: times the step's learning rate"},
    {"optimizer.param_groups.betas", KeyKind::kValue, "a list of two numbers from 0 to below 1"},
    {"optimizer.param_groups.eps", KeyKind::kValue, "a number above 0, 1.2e-38 at the least as in fp32"},
    {"optimizer.param_groups.momentum", KeyKind::kValue, "a number from 0 to below 1, for SGD"},
    {"optimizer.param_groups.weight_decay", KeyKind::kValue, "a number, 0 or more"},
    {"scheduler", KeyKind::kSection, "an object"},
    {"scheduler.type", KeyKind::kValue, "\"WarmupLR\" or \"WarmupDecayLR\""},
    {"scheduler.params", KeyKind::kSection, "an object"},
    {"scheduler.params.warmup_min_lr", KeyKind::kValue, "a number, 0 or more"},
    {"scheduler.params.warmup_max_lr", KeyKind::kValue, "a number, 0 or more"},
    {"scheduler.params.warmup_num_steps", KeyKind::kValue, "a positive integer"},
    {"scheduler.params.total_num_steps", KeyKind::kValue, "an integer above warmup_num_steps, for WarmupDecayLR"},
    {"scheduler.params.warmup_type", KeyKind::kValue, "\"log\" or \"linear\""},
    {"gradient_clipping", KeyKind::kValue, "a number, 0 or more (0: none)"},
    {"bf16", KeyKind::kSection, "an object"},
    {"bf16.enabled", KeyKind::kValue, "true or false (neither this nor fp16: fp32)"},
    {"fp16", KeyKind::kSection, "an object"},
    {"fp16.enabled", KeyKind::kValue, "true or false"},
    {"fp16.loss_scale", KeyKind::kValue, "0 (dynamic), or a number from 2^-100 to 2^100"},
    {"fp16.initial_scale_power", KeyKind::kValue,
     "an integer from 0 to 100: the first dynamic scale is 2 to this power"},
    {"fp16.loss_scale_window", KeyKind::kValue, "a positive integer"},
    {"fp16.hysteresis", KeyKind::kValue, "a positive integer"},
    {"fp16.consecutive_hysteresis", KeyKind::kValue, "true or false"},
    {"fp16.min_loss_scale", KeyKind::kValue, "a number from 2^-100 to the first dynamic scale"},
    {"zero_optimization", KeyKind::kSection, "an object"},
    {"zero_optimization.stage", KeyKind::kValue, "0, 1, 2 or 3"},
    {"steps_per_print", KeyKind::kValue, "a positive integer"},
    {"seed", KeyKind::kValue, "an integer, 0 or more"},
    {"endurance", KeyKind::kSection, "an object, as {\"terabytes_written\": 600, \"days\": 365}"},
    {"endurance.terabytes_written", KeyKind::kValue, "a number above 0 and below 1e12: what one drive is rated for"},
    {"endurance.days", KeyKind::kValue, "a number above 0 and below 1e12: how long the drives are to last"},
    {"sluice", KeyKind::kSection, "an object"},
    {"sluice.device", KeyKind::kValue, "\"auto\", \"cuda\" or \"cpu\""},
    {"sluice.device_memory", KeyKind::kValue, kBytes},
    {"sluice.host_memory", KeyKind::kValue, kBytes},
    {"sluice.nvme", KeyKind::kValue, "a list of folders, one for each of up to 16 drives, as [\"/local_nvme\"]"},
    {"sluice.chunk_elements", KeyKind::kValue, "an integer, 128 or more, or \"auto\""},
    {"sluice.commit_interval", KeyKind::kValue, "an integer from 1 to 1000000, or \"auto\""},
    {"sluice.io_backend", KeyKind::kValue, "\"auto\", \"uring\" or \"threads\""},
    {"sluice.io_block", KeyKind::kValue, "bytes in multiples of 4096 up to 64MiB, as \"1MiB\""},
    {"sluice.io_depth", KeyKind::kValue, "an integer from 1 to 4096"},
    {"sluice.placement", KeyKind::kSection, "an object"},
    {"sluice.placement.weights", KeyKind::kValue, kHomes},
    {"sluice.placement.state", KeyKind::kValue, kHomes},
    {"sluice.placement.gradient", KeyKind::kValue, kHomes},
    {"sluice.placement.activations", KeyKind::kValue, kHomes},
    {"sluice.update", KeyKind::kValue, "\"auto\", \"deferred\", \"speculative\" or \"replay\""},
    {"sluice.state_dtype", KeyKind::kValue, "\"fp32\" or \"bf16\""},
    {"sluice.recompute", KeyKind::kValue, "\"auto\" or \"always\""},
    {"sluice.loss_tile_tokens", KeyKind::kValue, kCountOrAuto},
    {"sluice.compute_threads", KeyKind::kValue, kThreadsOrAuto},
    {"sluice.update_threads", KeyKind::kValue, kThreadsOrAuto},
    {"sluice.trace", KeyKind::kValue, "the path of a file to write"},
};

struct LaterKey {
  std::string_view path;
  std::string_view reason;
};
// The incumbent's keys that wait for their piece of work. A key of a section stands for all below it.
constexpr LaterKey kLaterKeys[] = {
    {"amp", "automatic mixed precision; use bf16, fp16, or fp32"},
    {"fp16.auto_cast", "the key; the model and its inputs are fp16"},
    {"fp16.fp16_master_weights_and_grads", "masters in fp16; they are fp32"},
    {"bf16.immediate_grad_update", "the engine orders its gradients itself"},
    {"aio", "tuning of transfers; sluice.io_backend and sluice.io_depth are there"},
    {"tensorboard", "TensorBoard; the run's metrics.jsonl has the numbers"},
    {"wandb", "Weights & Biases; the run's metrics.jsonl has the numbers"},
    {"csv_monitor", "the CSV monitor; the run's metrics.jsonl has the numbers"},
    {"comet", "Comet; the run's metrics.jsonl has the numbers"},
    {"wall_clock_breakdown", "timers of the log; the lanes of the run's metrics.jsonl have the times"},
    {"memory_breakdown", "memory in the log; the run's metrics.jsonl has the peaks"},
    {"dump_state", "dumps of the configuration; the run's config.json has it"},
    {"flops_profiler", "the profiler of operations"},
    {"comms_logger", "several ranks"},
    {"communication_data_type", "several ranks"},
    {"prescale_gradients", "several ranks"},
    {"gradient_predivide_factor", "several ranks"},
    {"data_types", "another type of gradients"},
    {"sparse_gradients", "sparse gradients"},
    {"sparse_attention", "sparse attention"},
    {"activation_checkpointing", "the key; sluice.recompute says when blocks are recomputed from their checkpoints"},
    {"checkpoint", "checkpoint options; the run's store is committed as it trains"},
    {"data_efficiency", "curricula"},
    {"curriculum_learning", "curricula"},
    {"elasticity", "several ranks"},
    {"autotuning", "the tuner"},
    {"compression_training", "compression"},
    {"zero_allow_untested_optimizer", "other optimizers"},
    {"zero_force_ds_cpu_optimizer", "other optimizers"},
    {"optimizer.param_groups.lr", "a rate beside the schedule's; lr_factor multiplies the step's"},
    {"optimizer.legacy_fusion", "the key; the update is one pass"},
    {"optimizer.params.torch_adam", "the key; the update is the engine's own"},
    {"optimizer.params.adam_w_mode", "the key; choose with optimizer.type"},
    {"optimizer.params.bias_correction", "updates without bias correction"},
    {"optimizer.params.amsgrad", "AMSGrad"},
    {"zero_optimization.offload_optimizer", "its lowest tier; sluice.placement.state and the budgets decide"},
    {"zero_optimization.offload_param", "its lowest tier; sluice.placement.weights and the budgets decide"},
    {"zero_optimization.overlap_comm", "several ranks"},
    {"zero_optimization.contiguous_gradients", "the key; offsets are planned before the first step"},
    {"zero_optimization.allgather_partitions", "several ranks"},
    {"zero_optimization.allgather_bucket_size", "several ranks"},
    {"zero_optimization.reduce_scatter", "several ranks"},
    {"zero_optimization.reduce_bucket_size", "several ranks"},
    {"zero_optimization.round_robin_gradients", "several ranks"},
    {"zero_optimization.sub_group_size", "the key; sluice.chunk_elements is the unit of the update"},
    {"zero_optimization.stage3_prefetch_bucket_size", "the key; the budgets decide"},
    {"zero_optimization.stage3_param_persistence_threshold", "the key; the budgets decide"},
    {"zero_optimization.stage3_max_live_parameters", "the key; the budgets decide"},
    {"zero_optimization.stage3_max_reuse_distance", "the key; the budgets decide"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "the key; sluice checkpoint export writes weights"},
    {"zero_optimization.zero_hpz_partition_size", "several ranks"},
    {"zero_optimization.zero_quantized_weights", "several ranks"},
    {"zero_optimization.zero_quantized_gradients", "several ranks"},
};

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}
std::string_view leaf_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

}  // namespace

const KeyInfo* find_key(std::string_view path) {
  const auto* found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const KeyInfo& k) { return k.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

const std::string_view* find_later_key(std::string_view path) {
  for (const LaterKey& key : kLaterKeys) {
    if (key.path == path) return &key.reason;
  }
  return nullptr;
}

std::string nearest_key(std::string_view path) {
  const std::string_view section = section_of(path), leaf = leaf_of(path);
  const KeyInfo* best = nullptr;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const KeyInfo& key : kKeys) {
    // A key of another section counts as three edits more, so that a misplaced key is found and a typo stays at home.
    const size_t away = section_of(key.path) == section ? 0 : 3;
    const size_t distance = edit_distance(leaf_of(key.path), leaf) + away;
    if (distance < best_distance) {
      best = &key;
      best_distance = distance;
    }
  }
  return std::string(best->path);
}

std::string keys_of(std::string_view section) {
  std::string names;
  for (const KeyInfo& key : kKeys) {
    if (section_of(key.path) != section) continue;
    if (!names.empty()) names += ", ";
    names += leaf_of(key.path);
  }
  return names;
}

}  // namespace sluice
