#include "app/measured_folders.h"

#include <fmt/format.h>

#include "swap/drive_folders.h"

namespace sluice {

MeasuredFolders::MeasuredFolders(std::span<const std::filesystem::path> folders, const Log& log) {
  for (const std::filesystem::path& folder : folders) {
    if (made_.make(folder).was_there()) continue;
    say(log, LogLevel::kWarning, fmt::format("{} was not there: it is made for this measurement", folder.string()));
  }
  warn_of_no_drives(folders, log);
}

}  // namespace sluice
