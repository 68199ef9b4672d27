#include "app/tune_report.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "core/bytes.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// As people write them.
Json budget_json(int64_t bytes) { return bytes % kMiB == 0 ? Json(fmt::format("{}MiB", bytes / kMiB)) : Json(bytes); }

double tokens_per_s(const TuneReport& report, const Trial& trial) {
  return static_cast<double>(report.tokens_of_step) / trial.measured_ms() * 1e3;
}

std::string marks_of(const TuneReport& report, const Trial& trial) {
  std::string marks = trial.is_given() ? "as given" : trial.changes_bits() ? "other bits (*)" : "same bits";
  if (&trial == &report.chosen) marks += ", chosen";
  return marks;
}

Json trial_json(const TuneReport& report, const Trial& trial) {
  const BatchConfig& batch = trial.setup->config.batch;
  return {{"train_micro_batch_size_per_gpu", batch.micro},
          {"gradient_accumulation_steps", batch.accumulation},
          {"chunk_elements", trial.chunk_elements},
          {"device_memory", trial.plan.device_bytes},
          {"host_memory", trial.plan.host_bytes},
          {"predicted_ms", trial.candidate.step_ms},
          {"measured_ms", trial.measured_ms()},
          {"tokens_per_s", tokens_per_s(report, trial)},
          {"as_given", trial.is_given()},
          {"same_bits", !trial.changes_bits()},
          {"chosen", &trial == &report.chosen}};
}

}  // namespace

std::string report_words(const TuneReport& report) {
  std::string text = fmt::format("{:<13} {:>9} {:>11} {:>11} {:>12} {:>12} {:>9}\n", "micro-batches", "chunk", "device",
                                 "host", "predicted", "measured", "tokens/s");
  auto out = std::back_inserter(text);
  bool other_bits = false;
  for (const Trial& trial : report.trials) {
    const BatchConfig& batch = trial.setup->config.batch;
    fmt::format_to(out, "{:<13} {:>9} {:>11} {:>11} {:>9.1f} ms {:>9.1f} ms {:>9.0f}  {}\n",
                   fmt::format("{} x {}", batch.accumulation, batch.micro), trial.chunk_elements,
                   format_bytes(trial.plan.device_bytes), format_bytes(trial.plan.host_bytes), trial.candidate.step_ms,
                   trial.measured_ms(), tokens_per_s(report, trial), marks_of(report, trial));
    other_bits |= trial.changes_bits();
  }
  if (other_bits) {
    text += "(*) micro-batches of another size add up in another order: losses and digests differ in their last bits\n";
  }
  fmt::format_to(out, "\n{} settings predicted, {} more do not fit the budgets; written to {}", report.predicted,
                 report.unfit, report.file);
  return text;
}

std::string report_json(const TuneReport& report) {
  Json json = {
      {"candidates", Json::array()}, {"predicted", report.predicted}, {"unfit", report.unfit}, {"file", report.file}};
  for (const Trial& trial : report.trials) json["candidates"].push_back(trial_json(report, trial));
  return json.dump(2);
}

std::vector<std::pair<std::string, std::string>> changed_keys(const Trial& chosen, const PlanOptions& given) {
  const TuneSettings& settings = chosen.candidate.settings;
  std::vector<std::pair<std::string, std::string>> keys;
  const auto set = [&keys](const std::string& path, const Json& value) { keys.emplace_back(path, value.dump()); };
  if (settings.batching != 0) {
    set("train_micro_batch_size_per_gpu", chosen.setup->config.batch.micro);
    set("gradient_accumulation_steps", chosen.setup->config.batch.accumulation);
  }
  if (chosen.plan.device_bytes != given.device_bytes) {
    set("sluice.device_memory", budget_json(chosen.plan.device_bytes));
    set("sluice.host_memory", budget_json(chosen.plan.host_bytes));
  }
  // Derived, they follow from budgets and predictions: what was measured is what is written.
  if (settings.changes() != 0) set("sluice.chunk_elements", chosen.chunk_elements);
  return keys;
}

}  // namespace sluice
