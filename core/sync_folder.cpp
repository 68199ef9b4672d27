#include "core/sync_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/errors.h"

namespace sluice {

void sync_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) throw IoError({.action = "open", .path = folder.string(), .error_number = errno, .advice = ""});
  int result;
  do {
    result = ::fsync(file);
  } while (result != 0 && errno == EINTR);
  const int error_number = result == 0 ? 0 : errno;
  ::close(file);
  if (error_number == 0 || error_number == EINVAL) return;  // EINVAL: it cannot
  throw IoError({.action = "fsync", .path = folder.string(), .error_number = error_number, .advice = ""});
}

}  // namespace sluice
