// Folders for a benchmark's own files, on the drive to measure; they are removed at the end.
#pragma once
#include <filesystem>

namespace sluice {

// A folder that must be there: made where it is not, with those above it, and then removed at the end unless somebody
// has put something into it.
class MadeFolder {
 public:
  explicit MadeFolder(const std::filesystem::path& folder);  // throws IoError
  ~MadeFolder();
  void make();  // again, where somebody has removed it since
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool was_there() const { return first_made_.empty(); }

 private:
  std::filesystem::path path_;
  std::filesystem::path first_made_;  // the topmost
};

// A folder in one of those, with a name of its own; all in it is removed, too.
class ScratchFolder {
 public:
  // Makes PARENT/sluice-bench-XXXXXX, and PARENT too where it is not there. Throws IoError.
  explicit ScratchFolder(const std::filesystem::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Removes the names now. Files that are open live on without one, until they are closed or the process ends, however
  // that may be.
  void unlink_files() const noexcept;

 private:
  MadeFolder parent_;
  std::filesystem::path path_;
};

}  // namespace sluice
