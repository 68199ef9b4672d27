#include "swap/drive_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <system_error>

#include "core/errors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

fs::path one_spelling(const fs::path& folder) {
  std::error_code error;
  const fs::path absolute = fs::absolute(folder) / ".";  // with a slash at the end or without
  const fs::path canonical = fs::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : canonical;
}

bool are_one(const fs::path& a, const fs::path& b) {
  std::error_code not_there;
  return one_spelling(a) == one_spelling(b) || fs::equivalent(a, b, not_there);
}

// By their numbers; one folder of each. nullopt where one does not tell.
std::optional<std::map<dev_t, fs::path>> file_systems_of(std::span<const fs::path> folders) {
  std::map<dev_t, fs::path> found;
  for (const fs::path& folder : folders) {
    const fs::path there = existing_part(folder);
    struct stat status {};
    if (stat(there.c_str(), &status) != 0) return std::nullopt;
    found.emplace(status.st_dev, there);
  }
  return found;
}

}  // namespace

void check_distinct(std::span<const fs::path> folders) {
  for (size_t i = 0; i < folders.size(); ++i) {
    for (const fs::path& before : folders.first(i)) {
      if (!are_one(before, folders[i])) continue;
      throw ConfigError(fmt::format("{} and {} are one folder, named as two drives: name each drive's folder once",
                                    before.string(), folders[i].string()));
    }
  }
}

void check_distinct_files(std::span<const fs::path> files) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (const fs::path& before : files.first(i)) {
      std::error_code not_there;
      if (!fs::equivalent(before, files[i], not_there)) continue;
      throw ConfigError(fmt::format(
          "{} and {} are one file by a link, named as two drives: name one of the folders alone, or remove the link",
          before.string(), files[i].string()));
    }
  }
}

fs::path existing_part(const fs::path& folder) {
  std::error_code ignored;
  fs::path there = fs::absolute(folder).lexically_normal();
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  return there;
}

void warn_of_no_drives(std::span<const fs::path> folders, const Log& log) {
  constexpr unsigned long kTmpfs = 0x01021994, kRamfs = 0x858458f6;  // statfs(2)
  for (const fs::path& folder : folders) {
    struct statfs status {};
    if (statfs(existing_part(folder).c_str(), &status) != 0) continue;
    const auto type = static_cast<unsigned long>(status.f_type);
    if (type != kTmpfs && type != kRamfs) continue;
    say(log, LogLevel::kWarning,
        fmt::format("{} is on no drive: its file system ({}) is in host memory, which a store there takes beyond "
                    "any budget of it, and what it holds ends with the machine",
                    folder.string(), type == kTmpfs ? "tmpfs" : "ramfs"));
  }
}

int count_file_systems(std::span<const fs::path> folders) {
  const auto found = file_systems_of(folders);
  return found ? static_cast<int>(found->size()) : 0;
}

int64_t count_beside(const fs::path& folder, std::span<const fs::path> folders) {
  const int64_t beside = std::ranges::count_if(folders, [&](const fs::path& other) {
    return count_file_systems(std::array{folder, other}) == 1;
  });
  return std::max<int64_t>(beside, 1);
}

int64_t free_drive_bytes(std::span<const fs::path> folders) {
  const auto found = file_systems_of(folders);
  if (!found) return INT64_MAX;
  int64_t bytes = 0;
  for (const auto& [number, there] : *found) {
    struct statvfs space {};
    if (statvfs(there.c_str(), &space) != 0 || space.f_blocks == 0) return INT64_MAX;  // 0: it does not tell
    bytes += static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  }
  return bytes;
}

}  // namespace sluice
