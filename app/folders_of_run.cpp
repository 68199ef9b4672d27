#include "app/folders_of_run.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace sluice {

namespace fs = std::filesystem;

void FoldersOfRun::make(const fs::path& folder, std::string advice) { made_.make(folder, std::move(advice)); }

void FoldersOfRun::leave_signals_to(StopRequests& requests) {
  requests.take_over(made_.handlers());
  made_.leave_signals();
}

void FoldersOfRun::make_for_stores(std::span<const fs::path> stores, const Log& log) {
  for (const fs::path& store : stores) {
    const std::vector<fs::path>& made = made_.make(store).made();
    if (made.size() < 2) continue;
    say(log, LogLevel::kWarning,
        fmt::format("{}: was not there, and is made for the store in {}: where a drive was to be mounted, stop the "
                    "run, mount it and begin again",
                    made.front().string(), store.string()));
  }
}

}  // namespace sluice
