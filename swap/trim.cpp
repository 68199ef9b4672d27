#include "swap/trim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/errors.h"
#include "core/retried.h"
#include "swap/drive.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

struct Found {
  std::filesystem::path folder;
  Drive drive;          // locked
  uint64_t number = 0;  // of the store it is a part of
};

std::vector<Found> find_and_lock(std::span<const std::filesystem::path> folders, int rank) {
  std::vector<Found> found;
  std::vector<std::string> looked_at;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = store_path(folder, rank);
    looked_at.push_back(path.string());
    if (find_store(folder, rank) == StoreExists::kNo) continue;
    found.push_back({.folder = folder, .drive = Drive::open(path)});
    const std::optional<uint64_t> number = RecordStore::store_number(folder, rank);
    if (!number) throw ConfigError(fmt::format("{} is not a store of sluice: nothing is removed", path.string()));
    found.back().number = *number;
  }
  if (found.empty()) throw ConfigError(fmt::format("{}: no store is there", fmt::join(looked_at, ", ")));
  return found;
}

// Runs may name one folder of a drive, one after the other: what lies there now may be another one's.
void check_one_store(std::span<const Found> found, std::optional<uint64_t> number) {
  std::vector<std::string> own, others;
  for (const Found& each : found) {
    (each.number == number.value_or(found.front().number) ? own : others).push_back(each.drive.path().string());
  }
  if (others.empty()) return;
  if (!number) {
    throw ConfigError(
        fmt::format("{} and {} are parts of different stores, and which of them is meant is not written down: nothing "
                    "is removed; remove by hand what is not needed",
                    own.front(), others.front()));
  }
  const std::string left = own.empty() ? "here nothing is left of this run's store"
                                       : fmt::format(
                                             "put that one back, or, where it is gone, remove by hand what is "
                                             "left of this run's store: {}",
                                             fmt::join(own, ", "));
  throw ConfigError(fmt::format(
      "the store in {} is another run's, begun there since or put in the place of this run's drive: nothing "
      "is removed; {}",
      fmt::join(others, ", "), left));
}

// The file that the path leads to, then the link where there is one: cut off in between, no store is there.
void remove_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool is_link = std::filesystem::is_symlink(path, error);
  const std::filesystem::path file = is_link && !error ? std::filesystem::canonical(path, error) : path;
  if (!error) std::filesystem::remove(file, error);
  if (!error && is_link) std::filesystem::remove(path, error);
  if (error) throw IoError({.action = "removal", .path = path.string(), .error_number = error.value()});
}

int64_t give_back(const Drive& drive) {
  const std::filesystem::path& path = drive.path();
  struct stat status {};
  if (fstat(drive.file(), &status) != 0) {
    throw IoError({.action = "stat", .path = path.string(), .error_number = errno});
  }
  remove_file(path);
  // What is not punched out is freed as it is closed. A file that has another name is kept by somebody.
  struct stat now {};
  if (fstat(drive.file(), &now) != 0 || now.st_nlink > 0) return 0;
  retried([&] { return fallocate(drive.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size); });
  return status.st_blocks * kStatBlockBytes;
}

}  // namespace

std::vector<TrimmedStore> trim_stores(std::span<const std::filesystem::path> folders, std::optional<uint64_t> number,
                                      int rank) {
  SLUICE_CHECK(!folders.empty(), "a store lies in a folder");
  const std::vector<Found> found = find_and_lock(folders, rank);
  check_one_store(found, number);
  // The first drive's, which tells most of a store, goes last.
  std::vector<TrimmedStore> trimmed(found.size());
  for (size_t i = found.size(); i-- > 0;) trimmed[i] = {found[i].folder, give_back(found[i].drive)};
  return trimmed;
}

}  // namespace sluice
