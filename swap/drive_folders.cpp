#include "swap/drive_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <set>
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

fs::path nearest_there(const fs::path& folder) {
  std::error_code ignored;
  fs::path at = fs::absolute(folder).lexically_normal();
  while (!fs::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  return at;
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

int64_t free_drive_bytes(std::span<const fs::path> folders) {
  std::set<dev_t> counted;
  int64_t bytes = 0;
  for (const fs::path& folder : folders) {
    const fs::path there = nearest_there(folder);
    struct stat status {};
    struct statvfs space {};
    if (stat(there.c_str(), &status) != 0 || statvfs(there.c_str(), &space) != 0) return INT64_MAX;
    if (!counted.insert(status.st_dev).second) continue;
    bytes += static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  }
  return bytes;
}

}  // namespace sluice
