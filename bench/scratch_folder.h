// A folder for a benchmark's own files, on the drive to measure; it and all in it are removed at the end.
#pragma once
#include <filesystem>

namespace sluice {

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
  std::filesystem::path made_parent_;  // empty: it was there
  std::filesystem::path path_;
};

}  // namespace sluice
