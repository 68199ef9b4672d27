// What `sluice train` finds in the run's folder, and what it does there: begin, begin again, or go on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "app/run_folder.h"
#include "app/train.h"
#include "core/log.h"
#include "data/dataset.h"

namespace sluice {

struct Opening {
  RunFolder folder;
  OpenMode mode = OpenMode::kCreate;
  RunConfig config;                 // as the command gives it, and what a run that goes on takes from its folder
  std::optional<RunConfig> before;  // of a run that goes on; not there where it was cut off at its very beginning
  // Where the weights of a run that goes on came from, and are not read any more; empty: they were random.
  std::optional<std::string> model_folder;
  CacheUse cache = CacheUse::kIfUnchanged;
  FolderLock lock{};  // not held where the folder is not there yet

  bool goes_on() const { return mode == OpenMode::kResume || mode == OpenMode::kOpen; }
  std::vector<std::filesystem::path> stores() const { return folder.stores(config); }
};

// Changes nothing on any drive. Throws ConfigError where what is there is not as the options say.
Opening open_folder(const TrainOptions& options, const Log& log);

// Of a store that is locked by now. A run has its configuration in its folder before its first step, so that a store
// which has come to one where there is none is another run's. Throws ConfigError.
void check_own_store(const Opening& opening, int64_t step);

}  // namespace sluice
