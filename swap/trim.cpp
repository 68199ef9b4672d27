#include "swap/trim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/errors.h"
#include "swap/drive.h"
#include "swap/record_store.h"

namespace sluice {

int64_t trim_store(const std::filesystem::path& folder, int rank) {
  const std::filesystem::path path = store_path(folder, rank);
  if (find_store(folder, rank) == StoreExists::kNo) {
    throw ConfigError(fmt::format("{}: no store is there", path.string()));
  }
  const Drive drive = Drive::open(path);  // locked from here on
  if (!RecordStore::identify(folder, rank)) {
    throw ConfigError(fmt::format("{} is not a store of sluice: it is left as it is", path.string()));
  }
  struct stat status {};
  if (fstat(drive.file(), &status) != 0 || unlink(path.c_str()) != 0) {
    throw IoError({.action = "removal", .path = path.string(), .error_number = errno});
  }
  // The file has no name any more: what cannot be punched out is freed as it is closed.
  const int punched = fallocate(drive.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size);
  if (punched != 0 && errno != EOPNOTSUPP) {
    throw IoError({.action = "punch hole", .path = path.string(), .bytes = status.st_size, .error_number = errno});
  }
  return status.st_blocks * 512;
}

}  // namespace sluice
