#include "app/folders_of_run.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/signal_handlers.h"

namespace sluice {

namespace fs = std::filesystem;

void FoldersOfRun::make(const fs::path& folder, std::string advice) {
  const SignalsHeld held;
  made_.make(folder, std::move(advice));
  on_signals_.emplace(made_);
}

void FoldersOfRun::make_for_store(const fs::path& store, const Log& log) {
  const SignalsHeld held;
  const std::vector<fs::path>& made = made_.make(store).made();
  on_signals_.emplace(made_);
  if (made.size() < 2) return;
  say(log, LogLevel::kWarning,
      fmt::format("{}: was not there, and is made for the store in {}: where a drive was to be mounted, stop the run, "
                  "mount it and begin again",
                  made.front().string(), store.string()));
}

}  // namespace sluice
