#include "configs/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "configs/deepspeed_keys.h"
#include "core/nearest_name.h"

namespace sluice {
namespace {

constexpr std::string_view kBytes = "bytes, as \"12GiB\" or \"12GB\", or a positive integer up to 2^60";
constexpr std::string_view kCountOrAuto = "a positive integer or \"auto\"";
constexpr std::string_view kThreadsOrAuto = "an integer from 1 to 1024, or \"auto\"";
constexpr std::string_view kOffloadDevice = "\"none\", \"cpu\" or \"nvme\"";
constexpr std::string_view kPrecision = "an object, as {\"enabled\": true}";
constexpr std::string_view kHomes = "a home (\"auto\", \"host\", ...) or shares as {\"host\": 0.5, \"nvme\": 0.5}";

constexpr KeyInfo kKeys[] = {
    {"model", KeyKind::kOpenSection, "an object, as {\"type\": \"gpt2\", ...} or {\"path\": \"FOLDER\"}"},
    {"data", KeyKind::kSection, "an object"},
    {"data.path", KeyKind::kValue, "a file or folder of UTF-8 text, or for ids a NumPy file of them"},
    {"data.tokenizer", KeyKind::kValue, "\"byte\", \"sentencepiece\" or \"ids\""},
    {"data.vocab_size", KeyKind::kValue,
     "an integer, 300 to 1000000 for sentencepiece, 256 or more for byte, 1 or more for ids"},
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
    {"optimizer.params.adam_w_mode", KeyKind::kValue, "true or false, for Adam and AdamW"},
    {"optimizer.param_groups", KeyKind::kList,
     "a list of objects, as [{\"params\": [\"*.bias\", \"*.ln_*.weight\"], \"weight_decay\": 0}]"},
    {"optimizer.param_groups.params", KeyKind::kValue, "a list of patterns of parameters' names, as [\"*.bias\"]"},
    {"optimizer.param_groups.lr_factor", KeyKind::kValue, "a number, 0 or more: times the step's learning rate"},
    {"optimizer.param_groups.betas", KeyKind::kValue, "a list of two numbers from 0 to below 1"},
    {"optimizer.param_groups.eps", KeyKind::kValue, "a number above 0, 1.2e-38 at the least as in fp32"},
    {"optimizer.param_groups.momentum", KeyKind::kValue, "a number from 0 to below 1, for SGD"},
    {"optimizer.param_groups.weight_decay", KeyKind::kValue, "a number, 0 or more"},
    {"scheduler", KeyKind::kSection, "an object"},
    {"scheduler.type", KeyKind::kValue, "\"WarmupLR\", \"WarmupDecayLR\" or \"WarmupCosineLR\""},
    {"scheduler.params", KeyKind::kSection, "an object"},
    {"scheduler.params.warmup_min_lr", KeyKind::kValue, "a number, 0 or more, for WarmupLR and WarmupDecayLR"},
    {"scheduler.params.warmup_max_lr", KeyKind::kValue, "a number, 0 or more, for WarmupLR and WarmupDecayLR"},
    {"scheduler.params.warmup_min_ratio", KeyKind::kValue, "a number, 0 or more, for WarmupCosineLR"},
    {"scheduler.params.cos_min_ratio", KeyKind::kValue, "a number, 0 or more, for WarmupCosineLR"},
    {"scheduler.params.warmup_num_steps", KeyKind::kValue, "an integer, 0 or more (0 and 1: as 2)"},
    {"scheduler.params.total_num_steps", KeyKind::kValue,
     "an integer above warmup_num_steps, for WarmupDecayLR and WarmupCosineLR"},
    {"scheduler.params.warmup_type", KeyKind::kValue, "\"log\" or \"linear\""},
    {"gradient_clipping", KeyKind::kValue, "a number, 0 or more (0: none)"},
    {"bf16", KeyKind::kSection, kPrecision},
    {"bf16.enabled", KeyKind::kValue, "true or false (neither this nor fp16: fp32)"},
    {"fp16", KeyKind::kSection, kPrecision},
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
    {"zero_optimization.offload_optimizer", KeyKind::kSection, "an object"},
    {"zero_optimization.offload_optimizer.device", KeyKind::kValue, kOffloadDevice},
    {"zero_optimization.offload_optimizer.nvme_path", KeyKind::kValue, "a folder"},
    {"zero_optimization.offload_param", KeyKind::kSection, "an object"},
    {"zero_optimization.offload_param.device", KeyKind::kValue, kOffloadDevice},
    {"zero_optimization.offload_param.nvme_path", KeyKind::kValue, "a folder"},
    {"steps_per_print", KeyKind::kValue, "a positive integer"},
    {"seed", KeyKind::kValue, "an integer from 0 to 9223372036854775807"},
    {"endurance", KeyKind::kSection, "an object, as {\"terabytes_written\": 600, \"days\": 365}"},
    {"endurance.terabytes_written", KeyKind::kValue, "a number above 0 and below 1e12: what one drive is rated for"},
    {"endurance.days", KeyKind::kValue, "a number above 0 and below 1e12: how long the drives are to last"},
    {"tensorboard", KeyKind::kSection, "an object, as {\"enabled\": true, \"output_path\": \"runs\"}"},
    {"tensorboard.enabled", KeyKind::kValue, "true or false"},
    {"tensorboard.output_path", KeyKind::kValue, "a folder"},
    {"tensorboard.job_name", KeyKind::kValue, "the name of a folder in output_path"},
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

std::string_view section_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}
std::string_view leaf_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

bool is_below(std::string_view path, std::string_view section) {
  return section.empty() || (path.size() > section.size() && path.starts_with(section) && path[section.size()] == '.');
}
// Is it made of the first letters of the name's words, as "lr" of "learning_rate"?
bool is_short_for(std::string_view letters, std::string_view name) {
  std::string first;
  for (size_t i = 0; i < name.size(); ++i) {
    if (i == 0 || name[i - 1] == '_') first += name[i];
  }
  return first.size() > 1 && letters == first;
}
bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

const KeyInfo* find_key(std::string_view path) {
  const auto* found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const KeyInfo& k) { return k.path == path; });
  return found == std::end(kKeys) ? nullptr : found;
}

std::string nearest_key(std::string_view path) {
  const std::string_view section = section_of(path), leaf = leaf_of(path);
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  const auto look_at = [&](std::string_view key) {
    // A key of another section counts as three edits more, so that a misplaced key is found and a typo stays at home.
    const bool at_home = section_of(key) == section;
    const size_t away = at_home ? 0 : 3;
    std::optional<size_t> edits = slip_between(leaf_of(key), leaf);
    if (at_home && !edits && is_short_for(leaf_of(key), leaf)) edits = 1;
    if (!edits || (!at_home && *edits > 1) || *edits + away >= best_distance) return;
    best = key;
    best_distance = *edits + away;
  };
  for (const KeyInfo& key : kKeys) look_at(key.path);
  for (const DeepSpeedKey& key : deepspeed_keys()) look_at(key.path);
  return std::string(best);
}

std::string keys_of(std::string_view section) {
  std::vector<std::string_view> names, others;
  for (const KeyInfo& key : kKeys) {
    if (section_of(key.path) == section) names.push_back(leaf_of(key.path));
  }
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (key.fate == DeepSpeedKey::Fate::kNotThere || !is_below(key.path, section)) continue;
    const std::string_view below = key.path.substr(section.empty() ? 0 : section.size() + 1);
    const std::string_view name = below.substr(0, below.find('.'));
    if (!contains(names, name) && !contains(others, name)) others.push_back(name);
  }
  constexpr size_t kMostOthers = 12;
  if (others.size() > kMostOthers) {
    others = {"and those of DeepSpeed's that are not needed here"};
  }
  names.insert(names.end(), others.begin(), others.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace sluice
