// Small files beside a run that are whole or not there: written without a name or under a temporary one, synced,
// renamed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// With those above it. Throws IoError.
void make_folder(const std::filesystem::path& folder);

// A file being written. Not thread-safe. Until publish() nothing is visible under the final name, and what was there
// stays; the destructor removes what was not published.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void append(std::string_view bytes);
  void write_at(int64_t offset, std::string_view bytes);
  std::filesystem::path temporary() const;  // where this process finds it until then
  // fdatasync, rename, fsync of the folder. Throws IoError (disk full among others); nothing is published then.
  void publish();

 private:
  void write_all(int64_t offset, std::string_view bytes);
  bool name_it();
  std::filesystem::path path_, temporary_;  // temporary_: empty while it has no name
  int file_ = -1;
  int64_t end_ = 0;
};

// content = header (magic, version, fingerprint, length, CRC32C) + bytes; to be published.
std::unique_ptr<PendingFile> write_checked(const std::filesystem::path& path, uint32_t fingerprint,
                                           std::string_view bytes);
struct CheckedBytes {
  uint32_t fingerprint = 0;
  std::string bytes;
};
// nullopt: no such file or not whole.
std::optional<CheckedBytes> read_checked(const std::filesystem::path& path);

}  // namespace sluice
