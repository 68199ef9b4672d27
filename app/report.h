// The words of a run: the log's line of a step, and the summary at the end. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "app/batches.h"
#include "app/metrics.h"
#include "engine/engine.h"
#include "engine/hop_costs.h"

namespace sluice {

// How long each resource was busy in a step of `step_ms`. Reads and writes share the drives: `drive_ms`, or where
// nothing says it the most that it can be, their sum or the step. Copies up and down do not share: the longer of the
// two.
struct BusyTimes {
  LaneTimes lanes_ms{};
  std::optional<double> drive_ms;
};
GroupTimes busy_of_groups(const BusyTimes& busy, double step_ms);

struct StepContext {
  int64_t steps = 0;
  double average_samples_per_s = 0;  // since this process began to train
  double flops_per_token = 0;
};
std::string step_line(const StepMetrics& metrics, const StepContext& context, const Ledger& ledger);

struct RunSummary {
  int64_t steps = 0, steps_here = 0;  // of the run, and of them those of this process
  std::optional<double> first_loss, last_loss;
  std::optional<Validation> validation;
  double seconds = 0;
  DeviceKind device = DeviceKind::kHost;
  int64_t workspace_bytes = 0, workspace_peak_bytes = 0;  // of the device's: reserved for temporaries, used by them
  std::string endurance;  // lines of what was written to the drives
  Digests digests;
  std::string folder;
};
std::string summary(const RunSummary& run, const Ledger& ledger);

}  // namespace sluice
