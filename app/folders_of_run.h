// Folders that training makes before its store is there: the run's own, its events', the store's.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "app/signals.h"
#include "bench/scratch_folder.h"
#include "core/log.h"

namespace sluice {

// A run that ends before something has come into them leaves none behind: they go again with this and, until
// leave_signals_to(), with a signal that ends the process. What was there stays. One at a time in a process.
class FoldersOfRun {
 public:
  // With those above it. Throws IoError, which gives this advice.
  void make(const std::filesystem::path& folder, std::string advice);
  // Warns where the folder above it is missing too: a drive may not be mounted, and the store would lie on another one.
  void make_for_stores(std::span<const std::filesystem::path> stores, const Log& log);
  // From here on signals are requests to stop.
  void leave_signals_to(StopRequests& requests);

 private:
  FoldersGoneOnSignals made_;
};

}  // namespace sluice
