#include "configs/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "configs/batch.h"
#include "configs/document.h"
#include "configs/keys.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/geometry.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// Reads values by their paths; what is not there keeps its default.
class Reader {
 public:
  // Where the document is a part of the file: how its keys begin for people, and in the table of keys.
  struct Within {
    std::string shown, known;
  };
  Reader(const Json& document, const std::string& name, Within within = {})
      : document_(document), name_(name), within_(std::move(within)) {}

  const Json* find(std::string_view path) const {
    const Json* at = &document_;
    for (size_t from = 0; from <= path.size();) {
      const size_t dot = std::min(path.find('.', from), path.size());
      const auto found = at->find(std::string(path.substr(from, dot - from)));
      if (found == at->end()) return nullptr;
      at = &*found;
      from = dot + 1;
    }
    return at;
  }

  [[noreturn]] void refuse(std::string_view path, const Json& value, const std::string& more = "") const {
    throw ConfigError(fmt::format("{}: \"{}{}\" is {}; allowed: {}{}", name_, within_.shown, path, value.dump(),
                                  allowed(path), more));
  }
  [[noreturn]] void refuse_missing(std::string_view path) const {
    throw ConfigError(fmt::format("{}: \"{}{}\" is missing; allowed: {}", name_, within_.shown, path, allowed(path)));
  }

  template <typename T>
  void integer(std::string_view path, T& into, int64_t least,
               int64_t most = std::numeric_limits<int64_t>::max()) const {
    if (const Json* value = find(path)) into = static_cast<T>(checked_integer(path, *value, least, most));
  }
  template <typename T>
  void integer_or_auto(std::string_view path, T& into, int64_t least, T most = std::numeric_limits<T>::max()) const {
    const Json* value = find(path);
    if (value == nullptr || *value == "auto") return;
    into = static_cast<T>(checked_integer(path, *value, least, most));
  }

  // least <= value < below; both ends as the key's words say.
  void number(std::string_view path, double& into, double least, double below) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    if (!value->is_number()) refuse(path, *value);
    into = value->get<double>();
    if (!std::isfinite(into) || into < least || into >= below) refuse(path, *value);
  }

  void text(std::string_view path, std::string& into) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    if (!value->is_string() || value->get<std::string>().empty()) refuse(path, *value);
    into = value->get<std::string>();
  }

  // Calls `take(bool)` where the key is there.
  template <typename Take>
  void flag(std::string_view path, Take take) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse(path, *value);
    take(value->get<bool>());
  }

  template <typename T>
  void choice(std::string_view path, T& into, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    for (const auto& [word, meaning] : choices) {
      if (value->is_string() && value->get<std::string>() == word) {
        into = meaning;
        return;
      }
    }
    refuse(path, *value);
  }

  void bytes(std::string_view path, int64_t& into) const {
    const Json* value = find(path);
    if (value == nullptr) return;
    try {
      into = value->is_string() ? parse_bytes(value->get<std::string>()) : checked_integer(path, *value, 1);
    } catch (const ConfigError&) {
      into = 0;
    }
    if (into < 1) refuse(path, *value);
  }

  const std::string& name() const { return name_; }

 private:
  std::string_view allowed(std::string_view path) const { return find_key(within_.known + std::string(path))->allowed; }

  int64_t checked_integer(std::string_view path, const Json& value, int64_t least,
                          int64_t most = std::numeric_limits<int64_t>::max()) const {
    // 1e6 is an integer for people; beyond 2^53 a double is not one any more.
    const bool whole = value.is_number_float() && std::abs(value.get<double>()) < 9e15 &&
                       value.get<double>() == std::floor(value.get<double>());
    const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX);
    if ((!value.is_number_integer() && !whole) || too_big) refuse(path, value);
    const int64_t number = whole ? static_cast<int64_t>(value.get<double>()) : value.get<int64_t>();
    if (number < least || number > most) refuse(path, value);
    return number;
  }

  const Json& document_;
  const std::string& name_;
  Within within_;
};

constexpr int kMostThreads = 1024, kMostCommitInterval = 1000000;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// The hyper-parameters that each type knows beside lr and weight_decay, and its defaults, which are the incumbent's.
struct OptimizerType {
  std::string_view name;
  AdamOptions defaults;
  bool betas, eps, momentum;
};
const OptimizerType kOptimizerTypes[] = {
    {"AdamW", {.kind = AdamKind::kAdamW}, true, true, false},
    {"Adam", {.kind = AdamKind::kAdam, .weight_decay = 0}, true, true, false},
    {"Adagrad",
     {.kind = AdamKind::kAdagrad, .learning_rate = 1e-2, .epsilon = 1e-10, .weight_decay = 0},
     false,
     true,
     false},
    {"Lion", {.kind = AdamKind::kLion, .beta2 = 0.99, .weight_decay = 0}, true, false, false},
    {"SGD", {.kind = AdamKind::kSgd, .weight_decay = 0}, false, false, true},
};

void read_betas(const Reader& reader, AdamOptions& optimizer) {
  const Json* betas = reader.find("betas");
  if (betas == nullptr) return;
  const auto good = [](const Json& beta) { return beta.is_number() && beta >= 0.0 && beta < 1.0; };
  if (!betas->is_array() || betas->size() != 2 || !good((*betas)[0]) || !good((*betas)[1]))
    reader.refuse("betas", *betas);
  optimizer.beta1 = (*betas)[0].get<double>();
  optimizer.beta2 = (*betas)[1].get<double>();
}

// Of the run, or of one of its groups, in a document of their own.
void read_hyper_parameters(const Reader& reader, const OptimizerType& type, AdamOptions& optimizer) {
  const auto only_of_others = [&](std::string_view key, bool known) {
    const Json* value = reader.find(key);
    if (value && !known) reader.refuse(key, *value, fmt::format(", and not with \"optimizer.type\" \"{}\"", type.name));
  };
  only_of_others("betas", type.betas);
  only_of_others("eps", type.eps);
  only_of_others("momentum", type.momentum);
  reader.number("eps", optimizer.epsilon, std::numeric_limits<float>::min(), kNoLimit);
  reader.number("weight_decay", optimizer.weight_decay, 0, kNoLimit);
  reader.number("momentum", optimizer.momentum, 0, 1);
  read_betas(reader, optimizer);
}

void read_patterns(const Reader& reader, std::vector<std::string>& patterns) {
  const Json* value = reader.find("params");
  if (value == nullptr) reader.refuse_missing("params");
  if (!value->is_array() || value->empty()) reader.refuse("params", *value);
  for (const Json& pattern : *value) {
    if (!pattern.is_string() || pattern.get<std::string>().empty()) reader.refuse("params", *value);
    patterns.push_back(pattern.get<std::string>());
  }
}

void read_optimizer(const Reader& reader, RunConfig& config) {
  AdamOptions& optimizer = config.optimizer;
  const OptimizerType* type = &kOptimizerTypes[0];
  reader.choice<const OptimizerType*>("optimizer.type", type,
                                      {{"AdamW", &kOptimizerTypes[0]},
                                       {"Adam", &kOptimizerTypes[1]},
                                       {"Adagrad", &kOptimizerTypes[2]},
                                       {"Lion", &kOptimizerTypes[3]},
                                       {"SGD", &kOptimizerTypes[4]}});
  optimizer = type->defaults;
  if (const Json* params = reader.find("optimizer.params")) {
    const Reader own(*params, reader.name(), {"optimizer.params.", "optimizer.params."});
    own.number("lr", optimizer.learning_rate, 0, kNoLimit);
    read_hyper_parameters(own, *type, optimizer);
  }
  const Json* groups = reader.find("optimizer.param_groups");
  for (size_t i = 0; groups != nullptr && i < groups->size(); ++i) {
    const Reader own((*groups)[i], reader.name(),
                     {fmt::format("optimizer.param_groups[{}].", i), "optimizer.param_groups."});
    ParamGroupConfig& group =
        config.param_groups.emplace_back(ParamGroupConfig{.patterns = {}, .optimizer = optimizer});
    read_patterns(own, group.patterns);
    own.number("lr_factor", group.lr_factor, 0, kNoLimit);
    read_hyper_parameters(own, *type, group.optimizer);
  }
}

// The keys count where fp16 is enabled, and are checked everywhere.
void read_fp16(const Reader& reader, RunConfig& config) {
  const double beyond_largest = std::nextafter(kLargestLossScale, kNoLimit);
  LossScaleOptions scale{.kind = LossScaleOptions::Kind::kDynamic};
  double fixed = 0;
  int power = 16;
  constexpr std::string_view kScale = "fp16.loss_scale", kLeast = "fp16.min_loss_scale";
  reader.number(kScale, fixed, 0, beyond_largest);
  if (fixed != 0 && fixed < kSmallestLossScale) reader.refuse(kScale, fixed);
  reader.integer("fp16.initial_scale_power", power, 0, 100);
  reader.integer("fp16.loss_scale_window", scale.window, 1);
  reader.integer("fp16.hysteresis", scale.hysteresis, 1);
  reader.flag("fp16.consecutive_hysteresis", [&](bool yes) {
    scale.patience = yes ? LossScaleOptions::Patience::kAnewAfterGoodStep : LossScaleOptions::Patience::kAnewWhenRaised;
  });
  reader.number(kLeast, scale.least, kSmallestLossScale, beyond_largest);
  scale.first = std::ldexp(1.0, power);
  if (scale.least > scale.first) reader.refuse(kLeast, *reader.find(kLeast), fmt::format(", {:g}", scale.first));
  reader.flag("fp16.enabled", [&](bool yes) {
    if (!yes) return;
    if (config.precision == Precision::kBf16) {
      reader.refuse("fp16.enabled", true, ", and not with \"bf16.enabled\" true");
    }
    config.precision = Precision::kFp16;
    config.loss_scale = fixed == 0 ? scale : LossScaleOptions{.first = fixed};
  });
}

void read_schedule(const Reader& reader, ScheduleConfig& schedule) {
  if (reader.find("scheduler") == nullptr) return;
  if (reader.find("scheduler.type") == nullptr) reader.refuse_missing("scheduler.type");
  reader.choice<ScheduleKind>("scheduler.type", schedule.kind,
                              {{"WarmupLR", ScheduleKind::kWarmup}, {"WarmupDecayLR", ScheduleKind::kWarmupDecay}});
  reader.choice<WarmupShape>("scheduler.params.warmup_type", schedule.shape,
                             {{"log", WarmupShape::kLog}, {"linear", WarmupShape::kLinear}});
  reader.number("scheduler.params.warmup_min_lr", schedule.min_lr, 0, kNoLimit);
  reader.number("scheduler.params.warmup_max_lr", schedule.max_lr, 0, kNoLimit);
  reader.integer("scheduler.params.warmup_num_steps", schedule.warmup_steps, 1);
  constexpr std::string_view kTotal = "scheduler.params.total_num_steps";
  reader.integer(kTotal, schedule.total_steps, 1);
  const bool decays = schedule.kind == ScheduleKind::kWarmupDecay;
  if (!decays && reader.find(kTotal) != nullptr) reader.refuse(kTotal, *reader.find(kTotal));
  if (decays && schedule.total_steps <= schedule.warmup_steps) {
    throw ConfigError(fmt::format("{}: \"{}\" is {}; allowed: {}", reader.name(), kTotal, schedule.total_steps,
                                  find_key(kTotal)->allowed));
  }
}

std::optional<HomeKind> home_of(const std::string& word) {
  for (const HomeKind kind : {HomeKind::kAuto, HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme,
                              HomeKind::kHostAndDevice, HomeKind::kNvmeAndDevice}) {
    if (name_of(kind) == word) return kind;
  }
  return std::nullopt;
}

void read_homes(const Reader& reader, const std::string& path, HomeShares& shares) {
  const Json* value = reader.find(path);
  if (value == nullptr || *value == "auto") return;
  const auto add = [&](const std::string& word, double share) {
    const std::optional<HomeKind> home = home_of(word);
    if (!home) reader.refuse(path, *value, ", with the homes auto, device, host, nvme, host+device and nvme+device");
    shares.push_back({*home, share});
  };
  if (value->is_string()) return add(value->get<std::string>(), 1);
  if (!value->is_object() || value->empty()) reader.refuse(path, *value);
  for (const auto& [word, share] : value->items()) {
    if (!share.is_number() || share < 0.0 || share > 1.0) reader.refuse(path, *value);
    add(word, share.get<double>());
  }
}

void read_placement(const Reader& reader, Placement& placement) {
  read_homes(reader, "sluice.placement.weights", placement.weights);
  read_homes(reader, "sluice.placement.state", placement.state);
  read_homes(reader, "sluice.placement.gradient", placement.gradient);
  read_homes(reader, "sluice.placement.activations", placement.activations);
}

// What one key says against another.
void check_together(const Reader& reader, const SluiceConfig& sluice) {
  try {
    sluice.placement.validate();
    check_update_mode(sluice.update, sluice.commit_interval, sluice.placement);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", reader.name(), error.what()));
  }
}

void read_nvme(const Reader& reader, std::vector<std::string>& folders) {
  const Json* value = reader.find("sluice.nvme");
  if (value == nullptr) return;
  if (!value->is_array()) reader.refuse("sluice.nvme", *value);
  for (const Json& folder : *value) {
    if (!folder.is_string() || folder.get<std::string>().empty()) reader.refuse("sluice.nvme", *value);
    folders.push_back(folder.get<std::string>());
  }
  if (folders.size() > kMaxDrives) reader.refuse("sluice.nvme", *value);
  for (auto at = folders.begin(); at != folders.end(); ++at) {
    if (std::find(folders.begin(), at, *at) == at) continue;
    reader.refuse("sluice.nvme", *value, fmt::format(" (\"{}\" is there twice)", *at));
  }
}

// Both or neither: a rating says nothing without how long it is to last.
void read_endurance(const Reader& reader, EnduranceConfig& endurance) {
  if (reader.find("endurance") == nullptr) return;
  const auto read = [&](std::string_view path, double& into) {
    if (reader.find(path) == nullptr) reader.refuse_missing(path);
    reader.number(path, into, std::numeric_limits<double>::min(), 1e12);
  };
  read("endurance.terabytes_written", endurance.terabytes_written);
  read("endurance.days", endurance.days);
}

void read_sluice(const Reader& reader, SluiceConfig& sluice) {
  reader.choice<DeviceKind>("sluice.device", sluice.device,
                            {{"auto", DeviceKind::kAuto}, {"cuda", DeviceKind::kCuda}, {"cpu", DeviceKind::kHost}});
  reader.bytes("sluice.device_memory", sluice.device_memory_bytes);
  reader.bytes("sluice.host_memory", sluice.host_memory_bytes);
  read_nvme(reader, sluice.nvme);
  reader.integer_or_auto("sluice.chunk_elements", sluice.chunk_elements, kMinChunkElements);
  reader.integer_or_auto("sluice.commit_interval", sluice.commit_interval, 1, kMostCommitInterval);
  reader.choice<IoBackend>(
      "sluice.io_backend", sluice.io_backend,
      {{"auto", IoBackend::kAuto}, {"uring", IoBackend::kUring}, {"threads", IoBackend::kThreads}});
  reader.bytes("sluice.io_block", sluice.io_block_bytes);
  if (sluice.io_block_bytes % kPlaneAlignmentBytes != 0 || sluice.io_block_bytes > kMaxIoBlockBytes)
    reader.refuse("sluice.io_block", *reader.find("sluice.io_block"));
  reader.integer("sluice.io_depth", sluice.io_depth, 1, 4096);
  read_placement(reader, sluice.placement);
  reader.choice<UpdateMode>("sluice.update", sluice.update,
                            {{"auto", UpdateMode::kAuto},
                             {"deferred", UpdateMode::kDeferred},
                             {"speculative", UpdateMode::kSpeculative},
                             {"replay", UpdateMode::kReplay}});
  check_together(reader, sluice);
  using Recompute = SluiceConfig::Recompute;
  reader.choice<Recompute>("sluice.recompute", sluice.recompute,
                           {{"auto", Recompute::kAuto}, {"always", Recompute::kAlways}});
  reader.choice<DType>("sluice.state_dtype", sluice.state_dtype, {{"fp32", DType::kFp32}, {"bf16", DType::kBf16}});
  reader.integer_or_auto("sluice.loss_tile_tokens", sluice.loss_tile_tokens, 1);
  reader.integer_or_auto("sluice.compute_threads", sluice.compute_threads, 1, kMostThreads);
  reader.integer_or_auto("sluice.update_threads", sluice.update_threads, 1, kMostThreads);
  reader.text("sluice.trace", sluice.trace);
}

void read_data(const Reader& reader, DataOptions& data) {
  std::string path;
  reader.text("data.path", path);
  data.path = path;
  reader.choice<TokenizerKind>("data.tokenizer", data.tokenizer,
                               {{"byte", TokenizerKind::kByte}, {"sentencepiece", TokenizerKind::kSentencePiece}});
  const bool byte = data.tokenizer == TokenizerKind::kByte;
  reader.integer("data.vocab_size", data.vocab_size, byte ? 256 : kMinSentencePieceVocabulary,
                 kMaxSentencePieceVocabulary);
  if (reader.find("data.sequence_length") == nullptr) reader.refuse_missing("data.sequence_length");
  reader.integer("data.sequence_length", data.sequence_length, 1);
  reader.flag("data.shuffle", [&](bool yes) { data.shuffle = yes ? Shuffle::kYes : Shuffle::kNo; });
  reader.number("data.validation_fraction", data.validation_fraction, 0, 1);
}

std::string read_model(const Reader& reader) {
  const Json* model = reader.find("model");
  if (model == nullptr) reader.refuse_missing("model");
  return model->dump();
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // A folder opens as a stream on Linux and fails on its first read.
  if (!file || !(text << file.rdbuf()))
    throw ConfigError(fmt::format("{}: cannot be read as a configuration file", path));
  return text.str();
}

}  // namespace

RunConfig parse_config(const std::string& text, const std::string& name, std::span<const std::string> overrides) {
  const std::string checked = read_document(text, name, overrides);
  check_keys(checked, name);
  const Json document = Json::parse(checked);
  const Reader reader(document, name);
  RunConfig config;
  config.model = read_model(reader);
  read_data(reader, config.data);
  reader.integer_or_auto("train_batch_size", config.batch.train, 1);
  reader.integer_or_auto("train_micro_batch_size_per_gpu", config.batch.micro, 1, kMostSamples);
  reader.integer_or_auto("gradient_accumulation_steps", config.batch.accumulation, 1, kMostMicroBatches);
  derive_batch(config.batch, name);
  read_optimizer(reader, config);
  read_schedule(reader, config.schedule);
  reader.number("gradient_clipping", config.gradient_clipping, 0, kNoLimit);
  reader.flag("bf16.enabled", [&](bool yes) { config.precision = yes ? Precision::kBf16 : Precision::kFp32; });
  read_fp16(reader, config);
  reader.integer("zero_optimization.stage", config.zero_stage, 0, 3);
  reader.integer("steps_per_print", config.steps_per_print, 1);
  reader.integer("seed", config.seed, 0);
  read_endurance(reader, config.endurance);
  read_sluice(reader, config.sluice);
  return config;
}

RunConfig load_config(const std::string& path, std::span<const std::string> overrides) {
  return parse_config(read_file(path), path, overrides);
}

std::string overridden_document(const std::string& path, std::span<const std::string> overrides) {
  return Json::parse(read_document(read_file(path), path, overrides)).dump(2) + "\n";
}

}  // namespace sluice
