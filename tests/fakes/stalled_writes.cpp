#include "tests/fakes/stalled_writes.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace sluice {
StalledWrites::StalledWrites() = default;
StalledWrites::~StalledWrites() = default;
std::string StalledWrites::reason() { return "a sanitizer stands in front of write()"; }
}  // namespace sluice

#else

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<bool> stalled{false};
}  // namespace

namespace sluice {
StalledWrites::StalledWrites() { stalled = true; }
StalledWrites::~StalledWrites() { stalled = false; }
std::string StalledWrites::reason() { return {}; }
}  // namespace sluice

extern "C" ssize_t write(int file, const void* bytes, size_t count) {
  return stalled ? 0 : syscall(SYS_write, file, bytes, count);
}

extern "C" ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return stalled ? 0 : syscall(SYS_pwrite64, file, bytes, count, offset);
}

#endif
