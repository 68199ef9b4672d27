// The queue's backends for tests of both, where a machine may forbid io_uring, as containers do: what needs it is
// skipped there and says why.
#pragma once
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "swap/io_queue.h"

namespace sluice {

// By the kernel's own word, so that a queue that fails for any other reason fails its tests. Empty: it can be had.
inline const std::string& why_no_uring() {
  static const std::string why = [] {
    std::array<std::byte, 512> parameters{};  // more than io_uring_params has
    const auto ring = static_cast<int>(syscall(SYS_io_uring_setup, 1, parameters.data()));
    const int error_number = errno;
    if (ring >= 0) close(ring);
    const bool is_forbidden = ring < 0 && (error_number == ENOSYS || error_number == EPERM || error_number == EACCES);
    return is_forbidden ? std::string("io_uring cannot be had here: ") + std::strerror(error_number) : std::string();
  }();
  return why;
}

inline std::vector<IoBackend> backends_here() {
  if (why_no_uring().empty()) return {IoBackend::kUring, IoBackend::kThreads};
  std::printf("with threads alone: %s\n", why_no_uring().c_str());
  return {IoBackend::kThreads};
}

inline void skip_without_uring() {
  if (!why_no_uring().empty()) GTEST_SKIP() << why_no_uring();
}

class OnEachBackend : public ::testing::TestWithParam<IoBackend> {
 protected:
  void SetUp() override {
    if (GetParam() == IoBackend::kUring) skip_without_uring();
  }
};
inline std::string name_of_backend(const ::testing::TestParamInfo<IoBackend>& backend) {
  return backend.param == IoBackend::kUring ? "uring" : "threads";
}

}  // namespace sluice
