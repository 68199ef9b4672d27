#include "configs/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "configs/batch.h"
#include "configs/check_keys.h"
#include "configs/config_reader.h"
#include "configs/document.h"
#include "configs/fill_in_auto.h"
#include "configs/keys.h"
#include "configs/read_optimizer.h"
#include "configs/read_schedule.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/geometry.h"
#include "core/read_file.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostThreads = 1024, kMostCommitInterval = 1000000;

constexpr std::string_view kScale = "fp16.loss_scale";

// Of a loss scale that stays: the keys that only a dynamic one needs.
void say_what_stays(const ConfigReader& reader, double scale, std::vector<std::string>& notes) {
  std::vector<std::string> not_needed;
  for (const std::string_view key :
       {"initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"}) {
    const std::string path = fmt::format("fp16.{}", key);
    if (reader.find(path) != nullptr) not_needed.push_back(path);
  }
  if (not_needed.empty()) return;
  notes.push_back(
      fmt::format("not needed: \"{}\": \"{}\" {:g} stays as it is", fmt::join(not_needed, "\", \""), kScale, scale));
}

// The keys count where fp16 is enabled, and are checked everywhere.
void read_fp16(const ConfigReader& reader, RunConfig& config) {
  const double beyond_largest = std::nextafter(kLargestLossScale, kNoLimit);
  LossScaleOptions scale{.kind = LossScaleOptions::Kind::kDynamic};
  double fixed = 0;
  int power = 16;
  constexpr std::string_view kLeast = "fp16.min_loss_scale";
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
    if (fixed != 0) say_what_stays(reader, fixed, config.notes);
  });
}

std::optional<HomeKind> home_of(const std::string& word) {
  for (const HomeKind kind : {HomeKind::kAuto, HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme,
                              HomeKind::kHostAndDevice, HomeKind::kNvmeAndDevice}) {
    if (name_of(kind) == word) return kind;
  }
  return std::nullopt;
}

void read_homes(const ConfigReader& reader, const std::string& path, HomeShares& shares) {
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

void read_placement(const ConfigReader& reader, Placement& placement) {
  read_homes(reader, "sluice.placement.weights", placement.weights);
  read_homes(reader, "sluice.placement.state", placement.state);
  read_homes(reader, "sluice.placement.gradient", placement.gradient);
  read_homes(reader, "sluice.placement.activations", placement.activations);
}

// What one key says against another.
void check_together(const ConfigReader& reader, const SluiceConfig& sluice) {
  try {
    sluice.placement.validate();
    check_update_mode(sluice.update, sluice.commit_interval, sluice.placement);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", reader.name(), error.what()));
  }
}

void read_nvme(const ConfigReader& reader, std::vector<std::string>& folders) {
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
void read_endurance(const ConfigReader& reader, EnduranceConfig& endurance) {
  if (reader.find("endurance") == nullptr) return;
  const auto read = [&](std::string_view path, double& into) {
    if (reader.find(path) == nullptr) reader.refuse_missing(path);
    reader.number(path, into, std::numeric_limits<double>::min(), 1e12);
  };
  read("endurance.terabytes_written", endurance.terabytes_written);
  read("endurance.days", endurance.days);
}

// As DeepSpeed writes a path that nobody gave.
bool is_empty_text(const ConfigReader& reader, const std::string& path) {
  const Json* value = reader.find(path);
  return value != nullptr && *value == "";
}

// Defaults are DeepSpeed's (deepspeed/monitor/config.py).
void read_tensorboard(const ConfigReader& reader, std::string& folder) {
  std::string output_path, job_name = "DeepSpeedJobName";
  const std::string path = "tensorboard.output_path";
  if (!is_empty_text(reader, path)) reader.text(path, output_path);
  reader.text("tensorboard.job_name", job_name);
  reader.flag("tensorboard.enabled", [&](bool yes) {
    if (yes) folder = (std::filesystem::path(output_path.empty() ? "." : output_path) / job_name).string();
  });
}

void read_sluice(const ConfigReader& reader, SluiceConfig& sluice) {
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

void read_data(const ConfigReader& reader, DataOptions& data) {
  std::string path;
  reader.text("data.path", path);
  data.path = path;
  reader.choice<TokenizerKind>(
      "data.tokenizer", data.tokenizer,
      {{"byte", TokenizerKind::kByte}, {"sentencepiece", TokenizerKind::kSentencePiece}, {"ids", TokenizerKind::kIds}});
  reader.integer("data.vocab_size", data.vocab_size, least_vocabulary(data.tokenizer), kMaxSentencePieceVocabulary);
  if (reader.find("data.sequence_length") == nullptr) reader.refuse_missing("data.sequence_length");
  reader.integer("data.sequence_length", data.sequence_length, 1);
  reader.flag("data.shuffle", [&](bool yes) { data.shuffle = yes ? Shuffle::kYes : Shuffle::kNo; });
  reader.number("data.validation_fraction", data.validation_fraction, 0, 1);
}

bool are_one_folder(const std::string& a, const std::string& b) {
  const auto plain = [](const std::string& folder) { return std::filesystem::path(folder + "/").lexically_normal(); };
  return plain(a) == plain(b);
}

// The stages' one choice: the folders of the store, where the engine's own section does not name them.
void read_offload(const ConfigReader& reader, RunConfig& config) {
  int stage = 0;
  reader.integer("zero_optimization.stage", stage, 0, 3);
  std::vector<std::string>& folders = config.sluice.nvme;
  const bool named = !folders.empty();
  for (const std::string of : {"zero_optimization.offload_optimizer", "zero_optimization.offload_param"}) {
    enum class Tier { kNone, kCpu, kNvme } tier = Tier::kNone;
    std::string folder;
    reader.choice<Tier>(of + ".device", tier, {{"none", Tier::kNone}, {"cpu", Tier::kCpu}, {"nvme", Tier::kNvme}});
    const std::string path = of + ".nvme_path";
    if (tier == Tier::kNvme || !is_empty_text(reader, path)) reader.text(path, folder);
    if (folder.empty()) continue;
    if (named || tier != Tier::kNvme) {
      config.notes.push_back(fmt::format("not needed: \"{}\": {}", path,
                                         named ? "sluice.nvme names the drives" : "\"device\" is not \"nvme\""));
    } else if (std::ranges::none_of(folders, [&](const auto& other) { return are_one_folder(folder, other); })) {
      folders.push_back(folder);
    }
  }
}

// DeepSpeed's default was none before 0.19.3 and is 1 from there on (deepspeed/runtime/constants.py).
void read_clipping(const ConfigReader& reader, RunConfig& config) {
  constexpr std::string_view kClipping = "gradient_clipping";
  reader.number(kClipping, config.gradient_clipping, 0, kNoLimit);
  if (reader.find(kClipping) != nullptr || reader.find("zero_optimization") == nullptr) return;
  config.notes.push_back(fmt::format(
      "\"{}\" is not given: nothing is clipped, as in DeepSpeed before 0.19.3; later ones clip at 1", kClipping));
}

// After the schedule is read, which may set the rate. DeepSpeed has no optimizer of its own without a type.
void say_default_optimizer(const ConfigReader& reader, RunConfig& config) {
  constexpr std::string_view kType = "optimizer.type";
  if (reader.find(kType) != nullptr) return;
  config.notes.push_back(fmt::format("\"{}\" is not given: AdamW, with lr {:g} and weight_decay {:g}", kType,
                                     config.optimizer.learning_rate, config.optimizer.weight_decay));
}

std::string read_model(const ConfigReader& reader) {
  const Json* model = reader.find("model");
  if (model == nullptr) reader.refuse_missing("model");
  return model->dump();
}

// A micro-batch that is "auto" may come to the whole batch, which takes memory: that is said.
void read_batch(const ConfigReader& reader, RunConfig& config) {
  BatchConfig& batch = config.batch;
  constexpr std::string_view kTrain = "train_batch_size", kMicro = "train_micro_batch_size_per_gpu",
                             kAccumulation = "gradient_accumulation_steps";
  reader.integer_or_auto(kTrain, batch.train, 1);
  reader.integer_or_auto(kMicro, batch.micro, 1, kMostSamples);
  reader.integer_or_auto(kAccumulation, batch.accumulation, 1, kMostMicroBatches);
  derive_batch(batch, config.name);
  for (const auto& [key, size] :
       {std::pair(kTrain, batch.train), std::pair(kMicro, batch.micro), std::pair(kAccumulation, batch.accumulation)}) {
    const Json* const written = reader.find(key);
    if (written == nullptr || *written != "auto") continue;
    config.notes.push_back(fmt::format("\"{}\" \"auto\": {} is taken, as follows from the others", key, size));
  }
}

std::string text_of(const std::string& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) throw ConfigError(fmt::format("{}: there is no such configuration file", path));
  return *text;
}

}  // namespace

RunConfig parse_config(const std::string& text, const std::string& name, std::span<const std::string> overrides) {
  RunConfig config{.name = name};
  const std::string checked = fill_in_auto(read_document(text, name, overrides), name, config.notes);
  std::ranges::copy(check_keys(checked, name), std::back_inserter(config.notes));
  const Json document = Json::parse(checked);
  const ConfigReader reader(document, name);
  config.model = read_model(reader);
  read_data(reader, config.data);
  if (config.data.tokenizer == TokenizerKind::kByte && config.data.vocab_size > 256)
    config.notes.emplace_back("not needed: \"data.vocab_size\": the byte tokenizer has 256 ids");
  read_batch(reader, config);
  read_optimizer(reader, config);
  read_schedule(reader, config);
  say_default_optimizer(reader, config);
  read_clipping(reader, config);
  reader.flag("bf16.enabled", [&](bool yes) { config.precision = yes ? Precision::kBf16 : Precision::kFp32; });
  read_fp16(reader, config);
  reader.integer("steps_per_print", config.steps_per_print, 1);
  if (reader.find("seed") != nullptr) reader.integer("seed", config.seed.emplace(), 0);
  read_endurance(reader, config.endurance);
  read_tensorboard(reader, config.tensorboard);
  read_sluice(reader, config.sluice);
  read_offload(reader, config);
  return config;
}

RunConfig load_config(const std::string& path, std::span<const std::string> overrides) {
  return parse_config(text_of(path), path, overrides);
}

std::string overridden_document(const std::string& path, std::span<const std::string> overrides) {
  return Json::parse(read_document(text_of(path), path, overrides)).dump(2) + "\n";
}

}  // namespace sluice
