// What predictions start from: this machine's speeds, or those of a file, and the time of a model's visits.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/setup.h"
#include "engine/predict.h"

namespace sluice {

// A drive's speed changes with what else it does: what was kept serves for an hour, or not at all.
// kOfStoreThere: of a store on several drives that is in the folders, measured now with the shares that it gives them,
// and kept for no other; where none is there, as kKept.
enum class DriveFigures : uint8_t { kKept, kMeasuredNow, kOfStoreThere };

struct SpeedsWanted {
  std::optional<MachineSpeeds> machine;        // that --machine names; nullopt: this machine's
  std::vector<std::filesystem::path> folders;  // of the store, one for each drive; they need not be there yet
  std::optional<double> waiting_ms;            // compute waits so long for a visit's forward, in place of computing
  DriveFigures drives = DriveFigures::kKept;
  int drive_count = 0;  // that a named machine's speeds are asked for; 0: as many as folders
};
// A machine's speeds as if it had so many drives, where its file says how many it has: each like those.
MachineSpeeds with_drives(MachineSpeeds machine, int drives);

// The machine's speeds were measured before, or are now, its drives' again where those are old; visits are timed, or
// follow from the named machine's compute_tflop_per_s. Nothing where neither can be: the log says why.
std::optional<StepSpeeds> find_speeds(RunSetup& setup, const WorkspaceNeed& workspace, const SpeedsWanted& wanted,
                                      const Log& log);

int64_t tokens_of_micro_batch(const RunSetup& setup);
std::string digits_of(double value);  // 1234.5, 0.025
// Which homes the critical batch is of: the plan's, or those of plans for as many tokens.
enum class CriticalOf : uint8_t { kTheseHomes, kPlans };
// "predicted    812.3 ms a step; alone nvme 790.1, ... ms: nvme binds", lines for people.
std::string prediction_words(const Prediction& prediction, int64_t tokens_of_micro_batch, CriticalOf of);
// JSON text.
std::string prediction_json(const Prediction& prediction, int64_t tokens_of_micro_batch);

}  // namespace sluice
