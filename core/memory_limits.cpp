#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "core/cgroup.h"
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

}  // namespace

int64_t available_host_bytes() {
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  const int64_t machine = proc_bytes("/proc/meminfo", "MemAvailable").value_or(kNoLimit);
  return std::min(machine, cgroup_memory_left().value_or(kNoLimit));
}

int64_t resident_bytes() { return proc_bytes("/proc/self/status", "VmRSS").value_or(0); }

int64_t peak_resident_bytes() { return proc_bytes("/proc/self/status", "VmHWM").value_or(0); }

}  // namespace sluice
