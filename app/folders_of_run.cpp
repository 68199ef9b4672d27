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

void FoldersOfRun::make_for_stores(std::span<const fs::path> stores, const Log& log) {
  for (const fs::path& store : stores) {
    const SignalsHeld held;
    const std::vector<fs::path>& made = made_.make(store).made();
    on_signals_.emplace(made_);
    if (made.size() < 2) continue;
    say(log, LogLevel::kWarning,
        fmt::format("{}: was not there, and is made for the store in {}: where a drive was to be mounted, stop the "
                    "run, mount it and begin again",
                    made.front().string(), store.string()));
  }
}

}  // namespace sluice
