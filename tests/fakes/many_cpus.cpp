#include "tests/fakes/many_cpus.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace sluice {
ManyCpus::ManyCpus() = default;
ManyCpus::~ManyCpus() = default;
std::string ManyCpus::reason() { return "a sanitizer stands in front of sched_getaffinity()"; }
}  // namespace sluice

#else

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace {
std::atomic<size_t> least_bytes_of_a_set{0};
}  // namespace

namespace sluice {
ManyCpus::ManyCpus() { least_bytes_of_a_set = 2 * sizeof(cpu_set_t); }
ManyCpus::~ManyCpus() { least_bytes_of_a_set = 0; }
std::string ManyCpus::reason() { return {}; }
}  // namespace sluice

extern "C" int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t* cpus) noexcept {
  if (bytes < least_bytes_of_a_set) {
    errno = EINVAL;
    return -1;
  }
  const long written = syscall(SYS_sched_getaffinity, thread, bytes, cpus);
  if (written < 0) return -1;
  std::memset(reinterpret_cast<char*>(cpus) + written, 0, bytes - static_cast<size_t>(written));
  return 0;
}

#endif
