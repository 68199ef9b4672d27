#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/arena.h"
#include "core/errors.h"
#include "swap/io_queue.h"
#include "tests/fakes/few_threads.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST_F(FewThreads, serve_every_file_where_each_has_one) {
  const TempFolder folder;
  const std::array<int, 2> files = {open((folder.path() / "a").c_str(), O_RDWR | O_CREAT, 0644),
                                    open((folder.path() / "b").c_str(), O_RDWR | O_CREAT, 0644)};
  const Arena memory(4096);
  run_with_threads(3, [&] {
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
}

TEST_F(FewThreads, are_refused_where_a_file_has_none_saying_what_to_raise) {
  run_with_threads(3, [] {
    const auto [details, message] = failure_of([] { make_io_queue_threads({.depth = 16, .files = 4}); });
    EXPECT_EQ(details.error_number, EAGAIN);
    EXPECT_THAT(message, testing::AllOf(HasSubstr("start of a thread for I/O failed"), HasSubstr("ulimit -u"),
                                        HasSubstr("the I/O backend uring needs none")));
  });
}

TEST_F(FewThreads, of_which_a_log_that_throws_is_told_end_with_the_queue) {
  run_with_threads(3, [] {
    const Log full = [](LogLevel, const std::string&) { throw std::runtime_error("the log is full"); };
    EXPECT_THAT([&] { make_io_queue_threads({.depth = 16, .files = 2, .log = full}); },
                testing::ThrowsMessage<std::runtime_error>("the log is full"));
  });
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
