#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <thread>

#include "core/arena.h"
#include "core/errors.h"
#include "swap/io_queue.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr int kSkipped = 77;

// Runs the case in a process that may start so many threads: as a user who has no other processes, since the limit is
// a user's and holds for none who is root.
int run_with_threads(int threads, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const auto user = static_cast<uid_t>(getpid());
    const auto processes = static_cast<rlim_t>(1 + threads);
    const rlimit limit{.rlim_cur = processes, .rlim_max = processes};
    if (setresuid(user, user, user) != 0 || setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(kSkipped);
    body();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadsQueue, goes_on_with_fewer_threads_than_it_wants_as_long_as_every_file_has_one) {
  const TempFolder folder;
  const std::array<int, 2> files = {open((folder.path() / "a").c_str(), O_RDWR | O_CREAT, 0644),
                                    open((folder.path() / "b").c_str(), O_RDWR | O_CREAT, 0644)};
  const Arena memory(4096);
  const int ended = run_with_threads(3, [&] {
    LogLines lines;
    const auto queue = make_io_queue_threads({.depth = 16, .files = 2, .log = lines.log()});
    EXPECT_THAT(queue->describe(), HasSubstr("3 threads"));
    EXPECT_THAT(lines.text(), HasSubstr("no more can be started"));
    for (const int file : files) {
      queue->submit({.op = IoOp::kWrite, .file = file, .memory = memory.at(0), .bytes = 4096});
      IoCompletion done;
      EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
      EXPECT_EQ(done.result, 4096);
    }
  });
  for (const int file : files) close(file);
  if (ended == kSkipped) GTEST_SKIP() << "no other user can be taken on here, and root's threads are not limited";
  EXPECT_EQ(ended, 0);
}

TEST(ThreadsQueue, without_a_thread_for_each_file_is_refused_saying_what_to_raise) {
  const int ended = run_with_threads(3, [] {
    const auto [details, message] = failure_of([] { make_io_queue_threads({.depth = 16, .files = 4}); });
    EXPECT_EQ(details.error_number, EAGAIN);
    EXPECT_THAT(message, testing::AllOf(HasSubstr("start of a thread for I/O failed"), HasSubstr("ulimit -u"),
                                        HasSubstr("sluice.io_backend")));
    EXPECT_THAT(make_io_queue_threads({.depth = 16, .files = 3})->describe(), HasSubstr("3 threads"));
  });
  if (ended == kSkipped) GTEST_SKIP() << "no other user can be taken on here, and root's threads are not limited";
  EXPECT_EQ(ended, 0);
}

TEST(ThreadsQueue, a_request_that_is_turned_away_every_time_ends_with_that) {
  const TempFolder folder;
  const int file = open((folder.path() / "file").c_str(), O_RDWR | O_CREAT, 0644);
  const Arena memory(4096);
  std::thread([&] {
    forbid({.number = SYS_pread64, .error_number = EAGAIN});
    const auto queue = make_io_queue_threads({.depth = 2});
    queue->submit({.op = IoOp::kRead, .file = file, .memory = memory.at(0), .bytes = 4096});
    IoCompletion done;
    EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
    EXPECT_EQ(done.result, -EAGAIN);
  }).join();
  close(file);
}

}  // namespace
}  // namespace sluice
