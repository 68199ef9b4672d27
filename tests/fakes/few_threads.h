// A process that may start so many threads and no more.
#pragma once
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace sluice {

class FewThreads : public testing::Test {
 protected:
  // Runs the case in a process that may start so many threads: as a user who has no other processes, since the limit
  // is a user's and holds for none who is root.
  void run_with_threads(int threads, const std::function<void()>& body) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "this sanitizer's own thread counts, too";
#endif
    const pid_t child = fork();
    if (child == 0) _exit(run_limited(threads, body));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no other user can be taken on here: root is not limited";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }

 private:
  static constexpr int kSkipped = 77;

  static int run_limited(int threads, const std::function<void()>& body) {
    const auto user = static_cast<uid_t>(30000 + getpid() % 30000);
    const auto processes = static_cast<rlim_t>(1 + threads);
    const rlimit limit{.rlim_cur = processes, .rlim_max = processes};
    if (setresuid(user, user, user) != 0 || setrlimit(RLIMIT_NPROC, &limit) != 0) return kSkipped;
    EXPECT_NO_THROW(body());
    return HasFailure() ? 1 : 0;
  }
};

}  // namespace sluice
