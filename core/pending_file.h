// Small files that are whole or not there: written without a name or under a temporary one, synced, renamed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace sluice {

// A file being written. Not thread-safe. Until publish() nothing is visible under the final name, and what was there
// stays; the destructor removes what was not published. Who may read it follows from the process's umask.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void append(std::string_view bytes);
  void write_at(int64_t offset, std::string_view bytes);
  std::filesystem::path temporary() const;  // where this process finds it until then
  // fdatasync, rename, fsync of the folder. Throws IoError (disk full among others): what was there stays then, but
  // where the folder alone could not be synced.
  void publish();

 private:
  void write_all(int64_t offset, std::string_view bytes);
  bool name_it();
  std::filesystem::path path_, temporary_;  // temporary_: empty while it has no name
  int file_ = -1;
  int64_t end_ = 0;
};

}  // namespace sluice
