#include "swap/trim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/errors.h"
#include "swap/drive.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

struct Found {
  std::filesystem::path folder;
  Drive drive;  // locked
};

std::vector<Found> find_and_lock(std::span<const std::filesystem::path> folders, int rank) {
  std::vector<Found> found;
  std::vector<std::string> looked_at;
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = store_path(folder, rank);
    looked_at.push_back(path.string());
    if (find_store(folder, rank) == StoreExists::kNo) continue;
    found.push_back({.folder = folder, .drive = Drive::open(path)});
    if (!RecordStore::identify(folder, rank)) {
      throw ConfigError(fmt::format("{} is not a store of sluice: nothing is removed", path.string()));
    }
  }
  if (found.empty()) throw ConfigError(fmt::format("{}: no store is there", fmt::join(looked_at, ", ")));
  return found;
}

int64_t give_back(const Drive& drive) {
  const std::filesystem::path& path = drive.path();
  struct stat status {};
  if (fstat(drive.file(), &status) != 0 || unlink(path.c_str()) != 0) {
    throw IoError({.action = "removal", .path = path.string(), .error_number = errno});
  }
  // The file has no name any more: what cannot be punched out is freed as it is closed.
  const int punched = fallocate(drive.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size);
  if (punched != 0 && errno != EOPNOTSUPP) {
    throw IoError({.action = "punch hole", .path = path.string(), .bytes = status.st_size, .error_number = errno});
  }
  return status.st_blocks * kStatBlockBytes;
}

}  // namespace

std::vector<TrimmedStore> trim_stores(std::span<const std::filesystem::path> folders, int rank) {
  std::vector<TrimmedStore> trimmed;
  for (const Found& found : find_and_lock(folders, rank)) {
    trimmed.push_back({.folder = found.folder, .bytes = give_back(found.drive)});
  }
  return trimmed;
}

}  // namespace sluice
