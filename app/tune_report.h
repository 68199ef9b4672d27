// What `sluice tune` says of its trials, and the keys that its choice changes. Pure functions.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/tune_trials.h"

namespace sluice {

struct TuneReport {
  const std::vector<Trial>& trials;
  const Trial& chosen;
  int64_t tokens_of_step = 0;
  int64_t predicted = 0, unfit = 0;  // settings looked at
  std::string file;                  // that the chosen configuration is written to
};
// For people, and JSON text.
std::string report_words(const TuneReport& report);
std::string report_json(const TuneReport& report);

// Each a path in the configuration and its value as JSON text; none where the configuration as given was chosen.
std::vector<std::pair<std::string, std::string>> changed_keys(const Trial& chosen, const PlanOptions& given);

}  // namespace sluice
