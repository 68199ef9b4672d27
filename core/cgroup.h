// What this process's control groups allow, of version 2 and of version 1: the tightest limit of its group and of all
// that hold it. Read anew by each call. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace sluice {

// Where the kernel tells it; others for tests.
struct CgroupSources {
  std::filesystem::path membership = "/proc/self/cgroup";
  std::filesystem::path root = "/sys/fs/cgroup";
};
// Bytes that may still be taken; page cache that the kernel can drop counts as free. nullopt: no limit.
std::optional<int64_t> cgroup_memory_left(const CgroupSources& sources = {});
// Seconds of CPU time in a second. nullopt: no limit.
std::optional<double> cgroup_cpu_quota(const CgroupSources& sources = {});

}  // namespace sluice
