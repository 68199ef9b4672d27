// What `sluice tune` tries for real: short runs of a few candidates, in turns.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "app/console.h"
#include "app/free_space.h"
#include "app/setup.h"
#include "bench/step_bench.h"
#include "engine/tune.h"

namespace sluice {

struct Trial {
  TuneCandidate candidate;
  RunSetup* setup = nullptr;          // with the candidate's micro-batches; outlives the trial
  PlanOptions plan;                   // of a run whose steps are not clipped, as predictions are
  std::optional<MadePlan> made_plan;  // by the first of its runs
  int64_t chunk_elements = 0;         // that the plan has
  int64_t disk_bytes = 0;
  DriveNeeds needs;
  int commit_interval = 1;
  int filling_steps = kFillingSteps;
  std::vector<double> steps_ms;  // measured, means over commit intervals; run_trials() fills it

  bool is_given() const { return candidate.settings == TuneSettings{}; }
  bool changes_bits() const { return candidate.settings.batching != 0; }
  double measured_ms() const;  // the median
};
// `plan` must fit.
Trial make_trial(const TuneCandidate& candidate, RunSetup& setup, const PlanOptions& plan);

struct TrialOptions {
  int rounds = 3, steps = 2;  // measured steps a round, up to a whole commit interval
  TokenBatches tokens;        // of a step; their micro-batches may be of any size
  std::vector<std::filesystem::path> drives;
  IoQueueFactory make_queue = make_io_queue;
  std::function<void()> between;  // called between steps and chunks of a store; what it throws ends the trials
};
// Every round runs each trial once, on a scratch store of its own that is gone before the next: no more disk than one
// store. Nothing is clipped or skipped: this times steps of the middle of a run.
void run_trials(std::vector<Trial>& trials, const TrialOptions& options, Console& console);
// "4 steps", or where trials differ in their commits "up to 12 steps".
std::string steps_of_round_words(const std::vector<Trial>& trials, const TrialOptions& options);
double predicted_seconds(const std::vector<Trial>& trials, const TrialOptions& options);

// The fastest, where it is worth the change: 2 % faster than as given, and another 2 % where it changes bits.
const Trial& choose(const std::vector<Trial>& trials);

}  // namespace sluice
