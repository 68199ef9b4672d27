#include "app/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/carried.h"
#include "app/override_options.h"
#include "app/store_words.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/topology.h"
#include "data/dataset.h"
#include "data/utf8.h"
#include "libtorch/compute_device.h"
#include "libtorch/process.h"
#include "models/gpt2_workspace.h"
#include "offload/gpu.h"
#include "swap/drive_folders.h"
#include "swap/io_queue.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Of the memory where visits compute.
int64_t free_bytes(DeviceKind device) {
  return device == DeviceKind::kCuda ? first_gpu().free_bytes : available_host_bytes();
}

// What else runs there needs some.
int64_t room_to_try(DeviceKind device) { return free_bytes(device) / 10 * 9; }

MachineFacts this_machine(DeviceKind device) {
  return {.available_host_bytes = available_host_bytes(),
          .free_gpu_bytes = device == DeviceKind::kCuda ? free_bytes(device) : 0,
          .cores = usable_cores(*make_topology())};
}

// A vocabulary that the data's tokenizer may use up to.
void check_vocabulary(RunConfig& config, int64_t model_vocabulary) {
  DataOptions& data = config.data;
  const bool byte = data.tokenizer == TokenizerKind::kByte;
  if (data.vocab_size == 0) {
    data.vocab_size = byte ? 256 : model_vocabulary;
    if (data.tokenizer == TokenizerKind::kSentencePiece) {  // train would name a key that nobody wrote
      check_sentencepiece_vocabulary(data.vocab_size, "data.vocab_size, not given, is model.vocab_size");
    }
  }
  const int64_t ids = byte ? 256 : data.vocab_size;
  if (ids <= model_vocabulary) return;
  throw ConfigError(fmt::format(
      "data.tokenizer \"{}\" gives {} ids and model.vocab_size is {}: allowed is a model's vocabulary of {} or more",
      name_of(data.tokenizer), ids, model_vocabulary, ids));
}

// Patterns are of the names in files; a group has all tiles of what they match.
std::vector<ParameterGroup> groups_of(const RunConfig& config, const Gpt2& model) {
  const std::vector<WholeParameter> wholes = whole_parameters(model.spec(), model.tiles());
  std::vector<std::string_view> names;
  for (const WholeParameter& whole : wholes) names.push_back(whole.spec.name);
  std::vector<ParameterGroup> groups = match_groups(config.param_groups, names);
  for (ParameterGroup& group : groups) {
    const std::vector<std::string> matched = std::exchange(group.parameters, {});
    for (const std::string& name : matched) {
      const auto found = std::find(names.begin(), names.end(), name) - names.begin();
      for (const auto& part : wholes[static_cast<size_t>(found)].parts) group.parameters.push_back(part.name);
    }
  }
  return groups;
}

void say_what_trial_takes(const RunSetup& setup, const Log& log) {
  constexpr double kSoonComputed = 30e12;  // by a CPU
  const double flops = setup.model.trial_flops();
  if (setup.device != DeviceKind::kHost || flops < kSoonComputed) return;
  const Gpt2Options& options = setup.model.options();
  say(log, LogLevel::kInfo,
      fmt::format("trying a micro-batch of {} x {} tokens in one block of each kind, to measure what it needs: {:.0f} "
                  "TFLOP, which takes a CPU a while",
                  options.batch, options.sequence, flops / 1e12));
}

}  // namespace

std::string absolute_text(const fs::path& path) {
  const std::string text = without_end_slash(fs::absolute(path).lexically_normal()).string();
  if (utf8_valid_prefix(text) == text.size()) return text;
  throw ConfigError(
      fmt::format("{}: this path is not UTF-8 text, as a run's files are, which name it: give another one", text));
}

void make_paths_absolute(RunConfig& config) {
  if (!config.data.path.empty()) config.data.path = absolute_text(config.data.path);
  for (std::string& folder : config.sluice.nvme) folder = absolute_text(folder);
  check_distinct(store_drives(config));
  for (std::string* const path : {&config.sluice.trace, &config.tensorboard}) {
    if (!path->empty()) *path = absolute_text(*path);
  }
  Json model = Json::parse(config.model);
  const auto path = model.find("path");
  if (path == model.end() || !path->is_string()) return;
  *path = absolute_text(path->get<std::string>());
  config.model = model.dump();
}

std::string without_folder(const std::string& model) {
  Json section = Json::parse(model);
  section.erase("path");
  section["type"] = "gpt2";
  return section.dump();
}

fs::path folder_in(const std::string& model) { return Json::parse(model).value("path", std::string()); }

namespace {

void say_what_depth_is_taken(const SluiceConfig& sluice, const Log& log) {
  const int drives = std::max(1, static_cast<int>(sluice.nvme.size()));
  if (sluice.io_depth <= kMaxQueueDepth / drives) return;
  say(log, LogLevel::kWarning,
      fmt::format(
          "\"sluice.io_depth\" is {}: each of the {} drives has {} requests in flight, as a queue has {} for all",
          sluice.io_depth, drives, kMaxQueueDepth / drives, kMaxQueueDepth));
}

// What the model refuses of its section, with the file that has it; a Hugging Face folder's keys are in its own.
template <typename Make>
auto of_file(const RunConfig& config, const Make& make) {
  try {
    return make();
  } catch (const ConfigError& error) {
    const Json section = Json::parse(config.model, nullptr, false);
    if (section.is_object() && section.contains("path")) throw;
    throw ConfigError(fmt::format("{}: {}", config.name, error.what()));
  }
}

}  // namespace

RunSetup set_up(RunConfig config, const Log& log) {
  for (const std::string& note : config.notes) say(log, LogLevel::kInfo, note);
  say_what_depth_is_taken(config.sluice, log);
  const DeviceKind device = choose_device(config.sluice.device, log);
  ModelSection section = of_file(config, [&] { return read_model_section(config.model); });
  if (!section.without_effect.empty()) {
    say(log, LogLevel::kInfo,
        fmt::format("not needed: \"model.{}\": Hugging Face's, without effect on training",
                    fmt::join(section.without_effect, "\", \"model.")));
  }
  check_vocabulary(config, section.config.vocab_size);
  fill_defaults(config, this_machine(device));
  set_process({.compute_threads = config.sluice.compute_threads});
  Gpt2 model = of_file(config, [&] {
    return Gpt2(section.config, {.precision = config.precision,
                                 .batch = config.batch.micro,
                                 .sequence = config.data.sequence_length,
                                 .loss_tile_tokens = config.sluice.loss_tile_tokens,
                                 .device = device});
  });
  config.sluice.loss_tile_tokens = model.options().loss_tile_tokens;
  config.model = model_section_text(section);
  std::vector<ParameterGroup> groups = groups_of(config, model);
  return {.config = std::move(config),
          .device = device,
          .section = std::move(section),
          .model = std::move(model),
          .groups = std::move(groups)};
}

WorkspaceNeed estimate_workspace(const RunSetup& setup) {
  return {.memory = setup.model.estimate_memory(), .from = WorkspaceNeed::From::kClosedForm};
}

WorkspaceNeed find_workspace(RunSetup& setup, const Log& log) {
  if (setup.model.bytes_to_measure_memory() <= room_to_try(setup.device)) {
    say_what_trial_takes(setup, log);
    return {.memory = setup.model.measure_memory(), .from = WorkspaceNeed::From::kMeasured};
  }
  WorkspaceNeed need = estimate_workspace(setup);
  need.memory.workspace_bytes = with_closed_form_margin(need.memory.workspace_bytes);
  for (int64_t& graph : need.memory.graph_bytes) graph = with_closed_form_margin(graph);
  return need;
}

std::optional<std::vector<VisitTime>> time_visits(RunSetup& setup, const WorkspaceNeed& workspace, const Log& log) {
  const auto say_why = [&log](std::string_view why) {
    say(log, LogLevel::kWarning,
        fmt::format("no step time is predicted: {}; --machine FILE with compute_tflop_per_s says how fast it computes",
                    why));
    return std::nullopt;
  };
  if (workspace.from != WorkspaceNeed::From::kMeasured) return say_why("a micro-batch is too large to be tried here");
  const int64_t needed = setup.model.bytes_to_measure_visits(workspace.memory), free = room_to_try(setup.device);
  if (needed <= free) return setup.model.measure_visits(workspace.memory);
  return say_why(fmt::format("timing its blocks takes {} of the device's memory, and {} are free", format_bytes(needed),
                             format_bytes(free)));
}

PlanOptions plan_options(const RunSetup& setup, const ComputeMemory& memory) {
  const RunConfig& config = setup.config;
  const bool may_keep = config.sluice.recompute == SluiceConfig::Recompute::kAuto;
  return {.precision = config.precision,
          .optimizer = optimizer_of(config.optimizer.kind),
          .moments = config.sluice.state_dtype,
          .gradient_dtype = weights_dtype(config.precision),
          .device_bytes = config.sluice.device_memory_bytes,
          .host_bytes = config.sluice.host_memory_bytes,
          .workspace_bytes = memory.workspace_bytes,
          .own_device_bytes = own_device_bytes(setup.device),
          .graph_bytes = may_keep ? memory.graph_bytes : std::vector<int64_t>(),
          .micro_batches = static_cast<int>(config.batch.accumulation),
          .chunk_elements = config.sluice.chunk_elements,
          .commit_interval = config.sluice.commit_interval,
          .update = config.sluice.update,
          .clips = config.gradient_clipping > 0,
          .io_depth = config.sluice.io_depth,
          .drives = std::max(1, static_cast<int>(config.sluice.nvme.size())),
          .progress_bytes = sizeof(Carried),
          .placement = config.sluice.placement};
}

void say_what_planning_takes(const ModelSpec& model, const PlanOptions& options, const Log& log) {
  constexpr int64_t kSoonPlannedTurns = 50'000, kSoonPlannedChunks = 20'000;
  const auto visits = static_cast<int64_t>(model.visits.size());
  const std::optional<int64_t> chunk_elements = wanted_chunk_elements(model, options);
  if (!chunk_elements) return;  // refused at once
  const int64_t chunks = model.elements() / *chunk_elements;
  if (chunks > kSoonPlannedChunks) {
    say(log, LogLevel::kInfo,
        fmt::format("planning {} chunks of {} elements ({}sluice.{}): this can take minutes", chunks, *chunk_elements,
                    options.chunk_elements > 0 ? "" : "derived from ",
                    options.chunk_elements > 0 ? "chunk_elements" : "host_memory"));
  }
  if (options.micro_batches * visits < kSoonPlannedTurns) return;
  say(log, LogLevel::kInfo,
      fmt::format("planning steps of {} micro-batches in {} visits: this can take minutes", options.micro_batches,
                  visits));
}

void warn_of_run(const RunConfig& config, const Dataset& data, int64_t steps, const Log& log) {
  if (config.data.validation_fraction > 0 && data.validation_samples() < config.batch.micro) {
    say(log, LogLevel::kWarning,
        fmt::format("data.validation_fraction {} keeps back {} samples, and a micro-batch has {}: there will be no "
                    "validation loss",
                    config.data.validation_fraction, data.validation_samples(), config.batch.micro));
  }
  if (const auto rate = rate_after_end(config.schedule, config.optimizer.learning_rate, steps)) {
    say(log, LogLevel::kWarning,
        fmt::format("scheduler.params.total_num_steps is {} and the run has {} steps: after the schedule's end the "
                    "learning rate is {:g}; give --steps, or a larger number there",
                    config.schedule.total_steps, steps, *rate));
  }
}

EngineOptions engine_options(const RunSetup& setup, const PlanOptions& plan, const std::vector<fs::path>& stores,
                             const Log& log) {
  const SluiceConfig& sluice = setup.config.sluice;
  EngineOptions options;
  options.plan = plan;
  options.store.folder = stores.front();
  options.store.more_folders.assign(stores.begin() + 1, stores.end());
  options.store.queue = {.backend = sluice.io_backend, .depth = sluice.io_depth, .memory = {}, .log = log};
  options.store.log = log;
  options.store.words = &kRunWords;
  if (sluice.io_block_bytes > 0) {
    options.store.block_bytes = sluice.io_block_bytes;
    options.block = EngineOptions::Block::kStays;
  }
  options.adam = setup.config.optimizer;
  options.adam.rounding_seed = setup.config.seed_or_default();
  options.groups = setup.groups;
  options.max_norm = setup.config.gradient_clipping;
  options.loss_scale = setup.config.loss_scale;
  options.update_threads = sluice.update_threads;
  options.device = setup.device;
  options.trace_path = sluice.trace;
  options.log = log;
  return options;
}

namespace {

// Another model, of the same shapes, would be read from the store as well: what it says would be wrong.
void check_overrides(const RunFolder& folder, std::span<const std::string> overrides) {
  for (const std::string& each : overrides) {
    if (each.starts_with("sluice.")) continue;
    throw ConfigError(
        fmt::format("--set {}: {} is read as the run that it is: \"sluice.device_memory\" and others of \"sluice\" can "
                    "be set",
                    each, folder.path().string()));
  }
  refuse_trace(overrides);
}

}  // namespace

FoundRun find_run(const RunFolder& folder, RunFolder::For what, std::span<const std::string> overrides,
                  const Log& log) {
  check_overrides(folder, overrides);
  RunConfig config = folder.load(what, overrides);
  config.sluice.trace.clear();  // of the training
  config.model = without_folder(config.model);
  std::vector<fs::path> stores = folder.stores(config);
  if (find_store(stores) == StoreExists::kNo) folder.refuse_without_store(stores);
  check_each_drive(stores);
  folder.check_store(stores);
  if (const std::string lost = folder.lost_claim_words(stores); !lost.empty()) say(log, LogLevel::kWarning, lost);
  if (folder.has_gone_on_elsewhere(stores)) {  // reading takes nothing from either
    say(log, LogLevel::kWarning,
        fmt::format("{}: the store in {} is read as a run in another folder has left it, of which one is a copy of the "
                    "other",
                    folder.path().string(), joined(stores)));
  }
  return {std::move(config), std::move(stores)};
}

OpenRun open_run(const RunFolder& folder, std::span<const std::string> overrides, const Log& log) {
  auto [config, stores] = find_run(folder, RunFolder::For::kItsModel, overrides, log);
  RunSetup setup = set_up(std::move(config), log);
  EngineOptions options = engine_options(setup, plan_options(setup, find_workspace(setup, log).memory), stores, log);
  options.open = OpenMode::kOpen;
  options.store.access = StoreOptions::Access::kRead;
  options.store.words = &kReadRunWords;
  options.store.unread = StoreOptions::Unread::kPassedOver;  // nothing is lost by reading what can be read
  auto engine = std::make_unique<Engine>(setup.model.spec(), std::move(options), ParameterSource{});
  setup.model.use_memory(*engine);
  return {.setup = std::move(setup), .engine = std::move(engine)};
}

}  // namespace sluice
