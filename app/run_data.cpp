#include "app/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "app/metrics.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/interval_steps.h"
#include "core/median.h"
#include "core/read_file.h"
#include "engine/plan.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json read_json(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_text(path);
  if (!text) throw ConfigError(fmt::format("{}: there is no such file", path.string()));
  Json json = Json::parse(*text, nullptr, false);
  if (json.is_discarded())
    throw ConfigError(fmt::format("{}: is damaged: no JSON as a run writes it: bring the file back", path.string()));
  return json;
}

double number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

// Thrown for a line of metrics.jsonl that parses and is none that a run writes.
class DamagedLine : public Error {
  using Error::Error;
};

// Nothing where it is not there, as in lines of earlier builds, or null, as numbers that are not finite are written.
std::optional<double> maybe_figure(const Json& json, const char* key) {
  constexpr double kMost = 0x1p62;  // 64 bits hold it
  const Json value = json.value(key, Json());
  if (value.is_null()) return std::nullopt;
  if (value.is_number() && value >= 0 && value <= kMost) return value.get<double>();
  throw DamagedLine(key);
}
double figure(const Json& json, const char* key) {
  if (const std::optional<double> value = maybe_figure(json, key)) return *value;
  throw DamagedLine(key);
}
int64_t count(const Json& json, const char* key) { return static_cast<int64_t>(figure(json, key)); }
int64_t maybe_count(const Json& json, const char* key) {
  return static_cast<int64_t>(maybe_figure(json, key).value_or(0));
}
void check_positive(std::optional<double> value, const char* key) {
  if (value && *value <= 0) throw DamagedLine(key);
}

// Null where it was not finite.
std::optional<double> loss_of(const Json& line, const char* key) {
  const Json& value = line.at(key);
  if (!value.is_null() && !value.is_number()) throw DamagedLine(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

StepFiguresOfRun step_of(const Json& line) {
  const Json& lanes = line.at("lanes");
  StepFiguresOfRun step{.step = count(line, "step"),
                        .since_start = maybe_count(line, "since_start"),
                        .loss = loss_of(line, "loss"),
                        .step_ms = figure(line, "step_ms"),
                        .tokens_per_s = figure(line, "tokens_per_s"),
                        .skipped = line.value("skipped", false),
                        .undone = line.value("speculated", "") == name_of(Speculated::kWrong),
                        .predicted_step_ms = maybe_figure(line, "predicted_step_ms"),
                        .drive_ms = maybe_figure(line, "drive_ms"),
                        .state_read_bytes = maybe_count(lanes.at("read"), "state_bytes"),
                        .state_written_bytes = maybe_count(lanes.at("write"), "state_bytes"),
                        .lanes = {}};
  if (!line.at("step").is_number_integer() || step.step < 1) throw DamagedLine("step");
  check_positive(step.step_ms, "step_ms");
  check_positive(step.predicted_step_ms, "predicted_step_ms");
  for (size_t i = 0; i < step.lanes.size(); ++i) {
    const Json& lane = lanes.at(name_of(static_cast<Lane>(i)));
    step.lanes[i] = {
        .ms = figure(lane, "ms"), .bytes = count(lane, "bytes"), .predicted_ms = maybe_figure(lane, "predicted_ms")};
  }
  return step;
}

std::vector<TierMemory> tiers_of(const Json& memory) {
  std::vector<TierMemory> tiers;
  for (const char* name : {"device", "host", "nvme"}) {
    const Json& tier = memory.at(name);
    const std::optional<double> budget = maybe_figure(tier, "budget_bytes");
    tiers.push_back({.name = name,
                     .budget_bytes = budget ? std::optional(static_cast<int64_t>(*budget)) : std::nullopt,
                     .peak_bytes = count(tier, "peak_bytes")});
  }
  return tiers;
}

// Runs of earlier builds do not say it.
std::optional<ValidationOfRun> validation_of(const Json& line) {
  if (!line.contains("validation_loss")) return std::nullopt;
  return ValidationOfRun{.loss = loss_of(line, "validation_loss"),
                         .unigram_nats = figure(line, "unigram_nats"),
                         .tokens = count(line, "validation_tokens")};
}

// All of it or, where it throws, nothing.
void read_line(const Json& line, RunData& run) {
  if (line.contains("final")) {
    run.validation = validation_of(line);
    return;
  }
  StepFiguresOfRun step = step_of(line);
  const Json& memory = line.at("memory");
  std::vector<TierMemory> tiers = tiers_of(memory);
  run.resident_bytes = maybe_count(memory, "rss_bytes");
  run.memory = std::move(tiers);
  run.steps.push_back(std::move(step));
  run.validation.reset();  // of an end that the run has gone on from
}

void read_metrics(const std::filesystem::path& path, RunData& run) {
  std::ifstream file = open_metrics(path);
  for (std::string line; std::getline(file, line);) {
    try {
      read_line(Json::parse(line), run);
    } catch (const Json::exception&) {
      ++run.damaged_lines;
    } catch (const DamagedLine&) {
      ++run.damaged_lines;
    }
  }
  check_read(file, path);
}

void add_facts(const Json& config, RunData& run) {
  const auto add = [&](const std::string& name, const char* pointer) {
    const Json::json_pointer at(pointer);
    if (!config.contains(at) || config[at].is_null() || config[at] == Json::array()) return;
    const Json& value = config[at];
    run.facts.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  };
  const auto add_bytes = [&](const std::string& name, const char* pointer) {
    const Json::json_pointer at(pointer);
    if (!config.contains(at) || !config[at].is_number_integer()) return;
    run.facts.emplace_back(name, format_bytes(config[at].get<int64_t>()));
  };
  add("layers", "/model/n_layer");
  add("width", "/model/n_embd");
  add("vocabulary", "/model/vocab_size");
  add("tokens in a sample", "/data/sequence_length");
  add("samples in a step", "/train_batch_size");
  add("micro-batches", "/gradient_accumulation_steps");
  const auto enabled = [&](const char* pointer) { return config.value(Json::json_pointer(pointer), false); };
  run.facts.emplace_back("precision", enabled("/bf16/enabled") ? "bf16" : enabled("/fp16/enabled") ? "fp16" : "fp32");
  add("gradient clipping", "/gradient_clipping");
  add_bytes("device memory", "/sluice/device_memory");
  add_bytes("host memory", "/sluice/host_memory");
  add("drives", "/sluice/nvme");
  add("elements of a chunk", "/sluice/chunk_elements");
  add("steps between commits", "/sluice/commit_interval");
  const Json sluice = config.value("sluice", Json::object());
  run.commit_interval = std::max<int64_t>(1, static_cast<int64_t>(number(sluice, "commit_interval")));
  run.update = sluice.value("update", "");
}

// Those of the last process that went on with the run, without those that filled its pipeline.
std::span<const StepFiguresOfRun> steady_steps(std::span<const StepFiguresOfRun> steps) {
  constexpr size_t kFilling = 2, kEnough = 5;
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i].since_start == 1) {
      steps = steps.subspan(i);
      break;
    }
  }
  return steps.size() >= kEnough ? steps.subspan(kFilling) : steps;
}

using FigureOf = std::function<std::optional<double>(const StepFiguresOfRun&)>;

// Of those that have it.
std::optional<double> mean_of(std::span<const StepFiguresOfRun> steps, const FigureOf& value) {
  double sum = 0;
  int count = 0;
  for (const StepFiguresOfRun& step : steps) {
    const std::optional<double> one = value(step);
    sum += one.value_or(0);
    count += one ? 1 : 0;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

// State at home on the drives is read for every update and written after it; what is written beyond that is at home
// elsewhere, and goes there with commits alone.
Steady::RarerCommits rarer_commits(const RunData& run, std::span<const StepFiguresOfRun> steps) {
  const bool must_commit =
      run.update == name_of(UpdateMode::kSpeculative) || run.update == name_of(UpdateMode::kReplay);
  if (must_commit) return Steady::RarerCommits::kNoHelp;
  constexpr double kMore = 1.05;
  double read = 0, written = 0;
  IntervalSteps times;
  for (const StepFiguresOfRun& step : steps) {
    read += static_cast<double>(step.state_read_bytes);
    written += static_cast<double>(step.state_written_bytes);
    const bool commits =
        static_cast<double>(step.state_written_bytes) > kMore * static_cast<double>(step.state_read_bytes);
    (commits ? times.committing : times.others).push_back(step.step_ms);
  }
  const bool few_commits = run.commit_interval >= kCommitRarely;
  const bool much_time = !times.committing.empty() && !times.others.empty() &&
                         times.mean(static_cast<int>(run.commit_interval)) > (1 + kCommitsMayTake) * mean(times.others);
  return written > kMore * read && (!few_commits || much_time) ? Steady::RarerCommits::kHelp
                                                               : Steady::RarerCommits::kNoHelp;
}

}  // namespace

RunData read_run(const RunFolder& folder) {
  if (folder.holds() != RunFolder::Holds::kRun)
    static_cast<void>(folder.load(RunFolder::For::kItsStore));  // throws what names the folder and what to do
  const std::filesystem::path whole = without_end_slash(std::filesystem::absolute(folder.path()).lexically_normal());
  RunData run{.name = whole.filename().string(), .folder = folder.path().string()};
  try {
    add_facts(read_json(folder.config_file()), run);
  } catch (const Json::exception&) {
    throw ConfigError(
        fmt::format("{}: this is not the configuration that a run writes: bring that back, or train again",
                    folder.config_file().string()));
  }
  read_metrics(folder.metrics_file(), run);
  return run;
}

Steady steady_figures(const RunData& run) {
  const std::span<const StepFiguresOfRun> steps = steady_steps(run.steps);
  const auto interval = static_cast<size_t>(run.commit_interval);
  const size_t together = steps.size() >= interval ? interval : 1;
  const auto over_steps = [&](const FigureOf& value) {
    std::vector<double> means;
    for (size_t i = 0; i + together <= steps.size(); i += together) {
      if (const std::optional<double> mean = mean_of(steps.subspan(i, together), value)) means.push_back(*mean);
    }
    return means.empty() ? std::nullopt : std::optional(median(means));
  };
  Steady steady;
  steady.steps = std::ssize(steps);
  steady.skipped = std::ranges::count(steps, true, &StepFiguresOfRun::skipped);
  steady.undone = std::ranges::count_if(steps, [](const auto& step) { return step.undone && !step.skipped; });
  steady.rarer_commits = rarer_commits(run, steps);
  steady.steps_of_mean = static_cast<int64_t>(together);
  steady.step_ms = over_steps([](const auto& step) { return std::optional(step.step_ms); }).value_or(0);
  const double tokens = over_steps([](const auto& step) {
                          return std::optional(step.tokens_per_s * step.step_ms / 1e3);
                        }).value_or(0);  // of a step
  steady.tokens_per_s = steady.step_ms > 0 ? tokens / steady.step_ms * 1e3 : 0;
  steady.predicted_step_ms = over_steps([](const auto& step) { return step.predicted_step_ms; });
  steady.measured_as_predicted_ms =
      over_steps([](const auto& step) { return step.predicted_step_ms ? std::optional(step.step_ms) : std::nullopt; });
  steady.drive_ms = over_steps([](const auto& step) { return step.drive_ms; });
  for (size_t i = 0; i < steady.lanes.size(); ++i) {
    LaneFigures& lane = steady.lanes[i];
    lane.ms = over_steps([i](const auto& step) { return std::optional(step.lanes[i].ms); }).value_or(0);
    lane.bytes = static_cast<int64_t>(
        over_steps([i](const auto& step) { return std::optional<double>(step.lanes[i].bytes); }).value_or(0));
    lane.predicted_ms = over_steps([i](const auto& step) { return step.lanes[i].predicted_ms; });
  }
  return steady;
}

}  // namespace sluice
