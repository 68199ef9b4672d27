// While it lives no file of this process may become longer (ulimit -f). SIGXFSZ is as it was: who runs into the limit
// ends with the test.
#pragma once
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

namespace sluice {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = static_cast<rlim_t>(bytes), .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }

 private:
  rlimit before_{};
};

}  // namespace sluice
