// Room for a store's files where they are to lie, before any of them is made. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace sluice {

// One file system's, with the files that share it.
struct FileSystemRoom {
  std::vector<std::filesystem::path> files;
  int64_t needed_bytes = 0;  // by all of them
  int64_t free_bytes = 0;    // with what those that are there have now; INT64_MAX: it does not tell

  bool is_too_small() const { return free_bytes < needed_bytes; }
  std::vector<std::filesystem::path> folders() const;  // of the files
};
// For files so long, one number each, that take the place of those that are there, where links lead to others too.
// Neither files nor folders need be there: of a missing one the nearest folder above it counts. A file system comes
// where its first file does.
std::vector<FileSystemRoom> rooms_for(std::span<const std::filesystem::path> files, std::span<const int64_t> bytes);

}  // namespace sluice
