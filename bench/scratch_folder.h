// Folders that go again: those that nothing came into, and a benchmark's for its own files on the drive to measure.
#pragma once
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/signal_handlers.h"

namespace sluice {

// A folder that must be there: made where it is not, with those above it; what was made is removed at the end unless
// somebody has put something into it.
class MadeFolder {
 public:
  static constexpr const char* kOfDrive = "name a folder that can be written (sluice.nvme, --path of bench)";
  // Throws IoError, which gives this advice.
  explicit MadeFolder(const std::filesystem::path& folder, std::string advice = kOfDrive);
  ~MadeFolder();
  void make();  // again, where somebody has removed it since
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::string& advice() const { return advice_; }
  bool was_there() const { return made_.empty(); }
  const std::vector<std::filesystem::path>& made() const { return made_; }  // the topmost first

 private:
  void remove_made() noexcept;

  std::filesystem::path path_;
  std::string advice_;
  std::vector<std::filesystem::path> made_;
};

// Several, of which one may lie in another. They go with this object and, until leave_signals(), with a signal that
// asks the process to end, whichever thread hears it: one that comes while a folder is made waits until it is known.
// One at a time in a process.
class FoldersGoneOnSignals {
 public:
  FoldersGoneOnSignals();
  ~FoldersGoneOnSignals();
  FoldersGoneOnSignals(const FoldersGoneOnSignals&) = delete;
  FoldersGoneOnSignals& operator=(const FoldersGoneOnSignals&) = delete;

  const MadeFolder& make(const std::filesystem::path& folder, std::string advice = MadeFolder::kOfDrive);
  SignalHandlers& handlers() { return *handlers_; }  // for those that take over
  void leave_signals();

 private:
  std::deque<MadeFolder> folders_;
  std::optional<SignalHandlers> handlers_;
};

// PARENT, of a ScratchFolder's path; else the folder itself.
std::filesystem::path without_scratch(const std::filesystem::path& folder);

// A folder in one of those, with a name of its own; all in it is removed, too.
class ScratchFolder {
 public:
  // Makes PARENT/sluice-bench-XXXXXX, and PARENT too where it is not there. Throws IoError.
  explicit ScratchFolder(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // The path of none that is there.
  static std::filesystem::path pattern_in(const std::filesystem::path& parent);

  const std::filesystem::path& path() const { return path_; }
  // Removes the names now. Files that are open live on without one, until they are closed or the process ends, however
  // that may be.
  void unlink_files() const noexcept;

 private:
  MadeFolder parent_;
  std::filesystem::path path_;
};

}  // namespace sluice
