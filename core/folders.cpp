#include "core/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "core/errors.h"
#include "core/machine_advice.h"
#include "core/retried.h"

namespace sluice {

namespace fs = std::filesystem;

std::error_code make_missing_folders(const fs::path& folder, std::vector<fs::path>& made) {
  std::error_code error;
  std::vector<fs::path> missing;
  const auto is_missing = [&error](const fs::path& one) {
    return fs::symlink_status(one, error).type() == fs::file_type::not_found && one.has_relative_path();
  };
  for (fs::path up = folder; is_missing(up); up = up.parent_path()) missing.push_back(up);
  error.clear();
  for (; !missing.empty() && !error; missing.pop_back()) {
    if (fs::create_directory(missing.back(), error)) made.push_back(missing.back());
  }
  if (error || fs::is_directory(folder, error) || error) return error;
  return std::make_error_code(std::errc::not_a_directory);
}

FolderWas make_folder(const fs::path& folder, std::string_view advice) {
  std::vector<fs::path> made;
  if (const std::error_code error = make_missing_folders(folder, made)) {
    throw IoError({.action = "creation of the folder",
                   .path = folder.string(),
                   .error_number = error.value(),
                   .advice = std::string(advice)});
  }
  sync_parents(made);
  return made.empty() ? FolderWas::kThere : FolderWas::kMade;
}

void sync_parents(std::span<const fs::path> folders) {
  for (const fs::path& folder : folders) {
    try {
      sync_folder(folder.parent_path());
    } catch (const IoError& error) {
      const int error_number = error.details().error_number;
      if (error_number != EACCES && error_number != EPERM) throw;  // one that may be written to and not read cannot be
    }
  }
}

void sync_folder(const fs::path& folder) {
  const auto fail = [&](const char* action, int error_number) {
    throw IoError({.action = action,
                   .path = folder.empty() ? "." : folder.string(),
                   .error_number = error_number,
                   .advice = advice_of_machine(error_number, "make the folder readable and writable")});
  };
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail("open", errno);
  const int result = retried([&] { return ::fsync(file); });
  const int error_number = result == 0 ? 0 : errno;
  ::close(file);
  if (error_number != 0 && error_number != EINVAL) fail("fsync", error_number);  // EINVAL: it cannot
}

}  // namespace sluice
