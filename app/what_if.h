// `sluice plan --what-if KEY=VALUE,...` and what would help most: engine/what_if.h in words and JSON.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/predict.h"
#include "engine/what_if.h"

namespace sluice {

// `present`, changed by "host_memory=64GiB,device_memory=+8GiB", "drives=2", "tokens_per_step=8192"; what has a + comes
// beside what there is. Throws ConfigError for an unknown key, one that is named twice or has no value, or a value out
// of its range; a step has whole micro-batches, as many as a configuration's may have at the most.
Resources changed_resources(const Resources& present, std::span<const std::string> changes,
                            int64_t tokens_of_micro_batch);

struct StepTime {
  double step_ms = 0;
  int64_t tokens = 0;  // of a step
  double tokens_per_s() const { return static_cast<double>(tokens) / step_ms * 1e3; }
};
// "41.2 -> 29.0 s, 199 -> 282 tokens/s"
std::string step_times_words(const StepTime& before, const StepTime& after);

// Times as many tokens a second: what gives less is no help.
constexpr double kWorthOffering = 1.005;
// Lines for people, and JSON text: an array.
std::string would_help_words(std::span<const Offer> offers, const StepTime& present, int64_t tokens_of_micro_batch);
std::string would_help_json(std::span<const Offer> offers, int64_t tokens_of_micro_batch);
// What a run keeps of its prediction and its offers, for its report.
struct Help {
  std::string with;               // "one more drive"
  std::optional<double> step_ms;  // nothing: does not fit the budgets
  double tokens_per_s = 0;
};
struct WouldHelp {
  double step_ms = 0, tokens_per_s = 0;  // with what there is
  std::vector<Help> offers;              // the most tokens a second first
};
std::string kept_json(std::span<const Offer> offers, const StepTime& present, int64_t tokens_of_micro_batch);
// Nothing where no such file is. Throws ConfigError where it cannot be understood.
std::optional<WouldHelp> read_would_help(const std::filesystem::path& file);
// JSON text: the four keys with their values.
std::string resources_json(const Resources& resources, int64_t tokens_of_micro_batch);

}  // namespace sluice
