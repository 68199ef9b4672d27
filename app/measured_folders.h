// Folders of the drives that a benchmark measures.
#pragma once
#include <filesystem>
#include <span>

#include "bench/scratch_folder.h"
#include "core/log.h"

namespace sluice {

// Those that are not there are made for as long as this lives, however the process ends short of SIGKILL, which is
// said: it may be a drive that is not mounted. Throws IoError. One at a time in a process.
class MeasuredFolders {
 public:
  MeasuredFolders(std::span<const std::filesystem::path> folders, const Log& log);

 private:
  FoldersGoneOnSignals made_;
};

}  // namespace sluice
