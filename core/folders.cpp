#include "core/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "core/errors.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> missing_of(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  for (fs::path up = folder; !up.empty() && !fs::exists(up, ignored) && up != up.parent_path(); up = up.parent_path()) {
    missing.push_back(up);
  }
  return missing;
}

}  // namespace

FolderWas make_folder(const fs::path& folder, std::string_view advice) {
  const std::vector<fs::path> missing = missing_of(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw IoError({.action = "creation of the folder",
                   .path = folder.string(),
                   .error_number = error.value(),
                   .advice = std::string(advice)});
  }
  sync_parents(missing);
  return missing.empty() ? FolderWas::kThere : FolderWas::kMade;
}

void sync_parents(std::span<const fs::path> folders) {
  for (const fs::path& folder : folders) {
    try {
      sync_folder(folder.parent_path());
    } catch (const IoError&) {  // one that may be written to and not read
    }
  }
}

void sync_folder(const fs::path& folder) {
  const auto fail = [&](const char* action, int error_number) {
    throw IoError({.action = action,
                   .path = folder.empty() ? "." : folder.string(),
                   .error_number = error_number,
                   .advice = "make the folder readable and writable; look at the drive's health (dmesg)"});
  };
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail("open", errno);
  int result;
  do {
    result = ::fsync(file);
  } while (result != 0 && errno == EINTR);
  const int error_number = result == 0 ? 0 : errno;
  ::close(file);
  if (error_number != 0 && error_number != EINVAL) fail("fsync", error_number);  // EINVAL: it cannot
}

}  // namespace sluice
