// What the files of a run say, for its report: config.json, metrics.jsonl.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/run_folder.h"
#include "offload/program.h"

namespace sluice {

struct LaneFigures {
  double ms = 0;  // busy
  int64_t bytes = 0;
  std::optional<double> predicted_ms;
};
// By Lane.
using StepLaneFigures = std::array<LaneFigures, kLaneCount>;

struct StepFiguresOfRun {
  int64_t step = 0;
  int64_t since_start = 0;     // the first of a process is 1; 0: runs of earlier builds do not say
  std::optional<double> loss;  // nothing where it was not finite
  double step_ms = 0, tokens_per_s = 0;
  bool skipped = false;
  bool undone = false;  // updates that it ran in its backward
  std::optional<double> predicted_step_ms;
  std::optional<double> drive_ms;  // reads or writes under way, or both; runs of earlier builds do not say
  int64_t state_read_bytes = 0, state_written_bytes = 0;
  StepLaneFigures lanes;
};

struct TierMemory {
  std::string name;
  std::optional<int64_t> budget_bytes;
  int64_t peak_bytes = 0;
};

// Of the run's end, in nats a token.
struct ValidationOfRun {
  std::optional<double> loss;  // nothing where it was not finite
  double unigram_nats = 0;     // cross-entropy of the same tokens
  int64_t tokens = 0;
};

struct RunData {
  std::string name, folder;
  std::vector<std::pair<std::string, std::string>> facts;  // of the configuration, for people
  std::vector<StepFiguresOfRun> steps;
  int64_t damaged_lines = 0;                  // of metrics.jsonl: left out
  std::optional<ValidationOfRun> validation;  // nothing where the run has not come to its end, or did not validate
  int64_t commit_interval = 1;
  std::string update;  // sluice.update
  std::vector<TierMemory> memory;
  int64_t resident_bytes = 0;
};

// Throws ConfigError where no run is there, or a file of it cannot be understood.
RunData read_run(const RunFolder& folder);

// Of the run's last start, which may have other budgets than those before it: the median over whole commit intervals of
// what a step takes, commits spread over its interval. The first steps, which fill the pipeline, are left out where
// there are enough.
struct Steady {
  // Would the drives have less to write if commits were rarer? Not where all state is at home there, nor where
  // sluice.update needs a commit in every step, nor where few steps commit already and that takes little time.
  enum class RarerCommits : uint8_t { kNoHelp, kHelp } rarer_commits = RarerCommits::kNoHelp;
  double step_ms = 0, tokens_per_s = 0;
  std::optional<double> predicted_step_ms, drive_ms;
  std::optional<double> measured_as_predicted_ms;  // step_ms of the steps alone that have a prediction
  int64_t steps = 0, undone = 0, skipped = 0;      // undone: and not skipped
  int64_t steps_of_mean = 1;                       // the commit interval, where the run has come through a whole one
  StepLaneFigures lanes;
};
Steady steady_figures(const RunData& run);

}  // namespace sluice
