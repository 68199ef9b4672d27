#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "core/topology.h"

namespace sluice {
namespace {

// "Name:   1234 kB" of a /proc file, in bytes.
std::optional<int64_t> proc_bytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;  // "max" does not parse: no limit
  return std::nullopt;
}

// The value behind `name` in a memory.stat file.
int64_t stat_in(const std::filesystem::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (int64_t value = 0; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

struct Files {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // a line of memory.stat
};

// What is left under the tightest limit from `folder` up to `root`. Page cache that the kernel can drop counts as free.
int64_t left_under(const std::filesystem::path& root, std::filesystem::path folder, const Files& files) {
  int64_t left = std::numeric_limits<int64_t>::max();
  for (;;) {
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (limit && usage) {
      const int64_t used = std::max<int64_t>(0, *usage - stat_in(folder / "memory.stat", files.reclaimable));
      left = std::min(left, std::max<int64_t>(0, *limit - used));
    }
    if (folder == root || !folder.has_relative_path()) return left;
    folder = folder.parent_path();
  }
}

std::filesystem::path under(const std::filesystem::path& root, const std::string& group) {
  const std::filesystem::path folder = (root / std::filesystem::path(group).relative_path()).lexically_normal();
  // A container may show the host's path, which is not mounted here: then its own limits are at the root.
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) return root;
  return folder.has_filename() ? folder : folder.parent_path();
}

int64_t left_in_cgroup() {
  int64_t left = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      const std::filesystem::path root = "/sys/fs/cgroup";
      const Files files = {.limit = "memory.max", .usage = "memory.current", .reclaimable = "inactive_file"};
      left = std::min(left, left_under(root, under(root, group), files));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      const std::filesystem::path root = "/sys/fs/cgroup/memory";
      const Files files = {
          .limit = "memory.limit_in_bytes", .usage = "memory.usage_in_bytes", .reclaimable = "total_inactive_file"};
      left = std::min(left, left_under(root, under(root, group), files));
    }
  }
  return left;
}

}  // namespace

int64_t available_host_bytes() {
  const int64_t machine = proc_bytes("/proc/meminfo", "MemAvailable").value_or(std::numeric_limits<int64_t>::max());
  return std::min(machine, left_in_cgroup());
}

int64_t resident_bytes() { return proc_bytes("/proc/self/status", "VmRSS").value_or(0); }

int64_t peak_resident_bytes() { return proc_bytes("/proc/self/status", "VmHWM").value_or(0); }

}  // namespace sluice
