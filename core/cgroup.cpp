#include "core/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;  // "max" does not parse: no limit
  return std::nullopt;
}

// The value behind `name` in a memory.stat file.
int64_t stat_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (int64_t value = 0; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

enum class Version { kOne, kTwo };
struct ControlGroup {
  Version version;
  std::vector<fs::path> folders;  // its own and those of the groups that hold it, outwards
};

std::vector<fs::path> folders_of(const fs::path& root, const std::string& group) {
  fs::path folder = (root / fs::path(group).relative_path()).lexically_normal();
  // A container may show the host's path, which is not mounted here: then its own limits are at the root.
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) folder = root;
  if (!folder.has_filename()) folder = folder.parent_path();
  std::vector<fs::path> folders = {folder};
  while (folder != root && folder.has_relative_path()) folders.push_back(folder = folder.parent_path());
  return folders;
}

// The groups that limit what `controller` counts.
std::vector<ControlGroup> groups_of(const std::string& controller, const CgroupSources& sources) {
  std::vector<ControlGroup> groups;
  std::ifstream file(sources.membership);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      groups.push_back({Version::kTwo, folders_of(sources.root, group)});
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      groups.push_back({Version::kOne, folders_of(sources.root / controller, group)});
    }
  }
  return groups;
}

struct MemoryFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // a line of memory.stat
};
constexpr MemoryFiles kMemoryOfOne = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryFiles kMemoryOfTwo = {"memory.max", "memory.current", "inactive_file"};

std::optional<int64_t> memory_left(const fs::path& folder, Version version) {
  const MemoryFiles& files = version == Version::kOne ? kMemoryOfOne : kMemoryOfTwo;
  const auto limit = number_in(folder / files.limit), usage = number_in(folder / files.usage);
  if (!limit || !usage) return std::nullopt;
  const int64_t used = std::max<int64_t>(0, *usage - stat_in(folder / "memory.stat", files.reclaimable));
  return std::max<int64_t>(0, *limit - used);
}

// Microseconds in each period of so many: "200000 100000" in version 2; -1 or "max" is no limit.
std::optional<double> cpu_quota(const fs::path& folder, Version version) {
  std::optional<int64_t> quota, period;
  if (version == Version::kOne) {
    quota = number_in(folder / "cpu.cfs_quota_us");
    period = number_in(folder / "cpu.cfs_period_us");
  } else if (std::ifstream file(folder / "cpu.max"); file) {
    int64_t numbers[2] = {};
    if (file >> numbers[0] >> numbers[1]) quota = numbers[0], period = numbers[1];
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

template <typename Limit>
auto tightest(const std::string& controller, const CgroupSources& sources, const Limit& limit) {
  decltype(limit(fs::path(), Version::kOne)) least;
  for (const ControlGroup& group : groups_of(controller, sources)) {
    for (const fs::path& folder : group.folders) {
      const auto here = limit(folder, group.version);
      if (here && (!least || *here < *least)) least = here;
    }
  }
  return least;
}

}  // namespace

std::optional<int64_t> cgroup_memory_left(const CgroupSources& sources) {
  return tightest("memory", sources, memory_left);
}

std::optional<double> cgroup_cpu_quota(const CgroupSources& sources) { return tightest("cpu", sources, cpu_quota); }

}  // namespace sluice
