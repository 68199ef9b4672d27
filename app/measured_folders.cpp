#include "app/measured_folders.h"

#include <fmt/format.h>

#include "core/signal_handlers.h"
#include "swap/drive_folders.h"

namespace sluice {

MeasuredFolders::MeasuredFolders(std::span<const std::filesystem::path> folders, const Log& log) {
  const SignalsHeld held;
  for (const std::filesystem::path& folder : folders) {
    if (made_.make(folder).was_there()) continue;
    say(log, LogLevel::kWarning, fmt::format("{} was not there: it is made for this measurement", folder.string()));
  }
  on_signals_.emplace(made_);
  warn_of_no_drives(folders, log);
}

}  // namespace sluice
