// The queue's backends for tests of both, where a machine may forbid io_uring, as containers do: what needs it is
// skipped there and says why.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/errors.h"
#include "swap/io_queue.h"
#include "tests/fakes/message_of.h"

namespace sluice {

// Empty: it can be had.
inline const std::string& why_no_uring() {
  static const std::string why = message_or<IoError>("", [] { make_io_queue_uring({.depth = 1}); });
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
