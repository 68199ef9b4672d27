#include "tests/fakes/awkward_reads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace sluice {
AwkwardReads::AwkwardReads(Kind) {}
AwkwardReads::~AwkwardReads() = default;
std::string AwkwardReads::reason() { return "a sanitizer stands in front of pread()"; }
}  // namespace sluice

#else

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace {
std::atomic<sluice::AwkwardReads::Kind> reads{sluice::AwkwardReads::Kind::kNone};
std::atomic<int> calls{0};
}  // namespace

namespace sluice {
AwkwardReads::AwkwardReads(Kind kind) { reads = kind; }
AwkwardReads::~AwkwardReads() { reads = Kind::kNone; }
std::string AwkwardReads::reason() { return {}; }
}  // namespace sluice

extern "C" ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  using Kind = sluice::AwkwardReads::Kind;
  const Kind kind = reads;
  const bool interrupted = kind == Kind::kInterruptedAndShort && calls++ % 2 == 0;
  if (interrupted || kind == Kind::kFailing) {
    errno = interrupted ? EINTR : EIO;
    return -1;
  }
  return syscall(SYS_pread64, file, bytes, kind == Kind::kNone ? count : std::min<size_t>(count, 7), offset);
}

#endif
