#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "swap/io_queue.h"
#include "swap/store_format.h"
#include "swap/uring_buffers.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class UringQueue : public testing::Test {
 protected:
  void SetUp() override { skip_without_uring(); }
};

TEST_F(UringQueue, auto_takes_it_where_it_works) {
  EXPECT_THAT(make_io_queue({.depth = 3})->describe(), HasSubstr("io_uring, depth 3, unregistered"));
  const AlignedBuffer page(4096);
  const auto with_memory = make_io_queue({.depth = 4, .memory = {page.span()}});
  EXPECT_THAT(explain_io_backend(), HasSubstr(with_memory->describe()));
}

TEST(ForbiddenUringQueue, auto_falls_back_and_says_why_and_naming_it_fails) {
  std::thread([] {
    forbid({.number = SYS_io_uring_setup, .error_number = EPERM});
    LogLines lines;
    EXPECT_THAT(make_io_queue({.depth = 3, .log = lines.log()})->describe(), HasSubstr("threads"));
    EXPECT_THAT(lines.text(), HasSubstr("Operation not permitted"));
    EXPECT_THAT(explain_io_backend(), HasSubstr("threads: io_uring cannot be had here"));
    try {
      static constexpr StoreWords kOwn{.io_backend = " (--queue)"};
      make_io_queue({.backend = IoBackend::kUring, .words = &kOwn});
      ADD_FAILURE() << "io_uring was forbidden";
    } catch (const IoError& error) {
      EXPECT_EQ(error.details().error_number, EPERM);
      EXPECT_THAT(error.what(), HasSubstr("take the I/O backend threads, or auto (--queue)"));
    }
  }).join();
}

TEST_F(UringQueue, without_a_file_left_says_which_limit_that_is) {
  std::thread([] {
    forbid({.number = SYS_eventfd2, .error_number = EMFILE});
    EXPECT_THAT(message_of<IoError>([] { make_io_queue({.backend = IoBackend::kUring}); }), HasSubstr("ulimit -n"));
  }).join();
}

TEST_F(UringQueue, memory_that_the_kernel_does_not_register_is_used_all_the_same) {
  TempFolder folder;
  const int file = open((folder.path() / "file").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(ftruncate(file, 8192), 0);
  void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);  // a file's: refused
  ASSERT_NE(mapped, MAP_FAILED);
  auto* memory = static_cast<std::byte*>(mapped);
  LogLines lines;
  auto queue = make_io_queue_uring({.depth = 2, .memory = {{memory, 4096}}, .log = lines.log()});
  EXPECT_THAT(queue->describe(), HasSubstr("unregistered"));
  EXPECT_THAT(lines.text(), HasSubstr("not registered"));
  queue->submit({.op = IoOp::kRead, .file = file, .memory = memory, .bytes = 4096, .offset = 4096});
  IoCompletion done;
  EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
  EXPECT_EQ(done.result, 4096);
  munmap(mapped, 4096);
  close(file);
}

TEST_F(UringQueue, a_request_may_cross_from_one_registered_piece_into_the_next) {
  TempFolder folder;
  const int file = open((folder.path() / "file").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0644);
  const Arena arena(UringBuffers::kMostBytes + 2 * kMiB);
  auto queue = make_io_queue_uring({.depth = 2, .memory = {arena.span()}});
  if (queue->describe().find("unregistered") != std::string::npos) {
    close(file);
    GTEST_SKIP() << "258 MiB cannot be registered here (ulimit -l)";
  }
  std::byte* memory = arena.at(UringBuffers::kMostBytes - 4096);
  std::memset(memory, 0x5A, 8192);
  IoCompletion done;
  queue->submit({.op = IoOp::kWrite, .file = file, .memory = memory, .bytes = 8192});
  queue->poll({&done, 1}, Wait::kUntilOne);
  EXPECT_EQ(done.result, 8192);
  std::memset(memory, 0, 8192);
  queue->submit({.op = IoOp::kRead, .file = file, .memory = memory, .bytes = 8192});
  queue->poll({&done, 1}, Wait::kUntilOne);
  EXPECT_EQ(done.result, 8192);
  EXPECT_EQ(memory[8191], std::byte{0x5A});
  close(file);
}

// Addresses alone: nothing is behind them.
std::span<std::byte> made_up(int64_t address, int64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), static_cast<size_t>(bytes)};
}

TEST(UringBuffers, no_piece_has_whole_large_pages_and_others) {
  constexpr int64_t kPage = 4096, kLarge = 2 * kMiB, kBase = 64 * kGiB;
  struct Case {
    std::vector<std::span<std::byte>> memory;
    std::vector<std::pair<int64_t, int64_t>> pieces;  // where they begin, bytes
  };
  const std::vector<Case> cases = {
      {{made_up(kBase, 3 * kLarge + 2 * kPage)}, {{kBase, 3 * kLarge}, {kBase + 3 * kLarge, 2 * kPage}}},
      {{made_up(kBase - kPage, kPage + kLarge)}, {{kBase - kPage, kPage}, {kBase, kLarge}}},
      {{made_up(kBase + kPage, 5 * kPage)}, {{kBase + kPage, 5 * kPage}}},
      {{made_up(kBase + kPage, kLarge)}, {{kBase + kPage, kLarge - kPage}, {kBase + kLarge, kPage}}},
      {{made_up(kBase + kGiB, kLarge), made_up(kBase, 300 * kMiB)},
       {{kBase, 256 * kMiB}, {kBase + 256 * kMiB, 44 * kMiB}, {kBase + kGiB, kLarge}}},
  };
  for (const Case& each : cases) {
    const UringBuffers buffers(each.memory);
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const iovec& piece : buffers.pieces()) {
      found.emplace_back(reinterpret_cast<int64_t>(piece.iov_base), static_cast<int64_t>(piece.iov_len));
    }
    EXPECT_EQ(found, each.pieces);
    for (int i = 0; i < static_cast<int>(found.size()); ++i) {
      const auto [first, bytes] = found[static_cast<size_t>(i)];
      const auto piece_of = [&](int64_t at, int64_t size) {
        return buffers.piece_of(reinterpret_cast<std::byte*>(at), static_cast<size_t>(size));
      };
      EXPECT_EQ(piece_of(first, bytes), i);
      EXPECT_EQ(piece_of(first + bytes - 512, 512), i);
      EXPECT_EQ(piece_of(first + bytes - 512, 1024), -1) << "it lies in two, or in none behind";
      EXPECT_EQ(piece_of(first - 512, 1024), -1);
    }
  }
}

TEST_F(UringQueue, an_interrupt_ends_a_wait_for_a_request_that_does_not_come) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::array<std::byte, 5> memory{};
  auto queue = make_io_queue_uring({.depth = 2});
  queue->submit({.op = IoOp::kRead, .file = ends[0], .memory = memory.data(), .bytes = 5, .tag = 9});
  queue->flush();
  std::thread other([&] { queue->interrupt(); });
  IoCompletion done;
  EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 0u);
  other.join();
  EXPECT_EQ(write(ends[1], "12345", 5), 5);
  EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
  EXPECT_EQ(done.result, 5);
  for (int end : ends) close(end);
}

// Of a file whose first byte is no zero: memory that it was read into tells.
class RefusedRequests : public UringQueue {
 protected:
  static constexpr int64_t kBytes = 4096;
  RefusedRequests() : file_(open((folder_.path() / "file").c_str(), O_RDWR | O_CREAT, 0644)) {
    EXPECT_EQ(pwrite(file_, "x", 1, 0), 1);
    EXPECT_EQ(ftruncate(file_, kBytes), 0);
  }
  ~RefusedRequests() override { close(file_); }
  IoRequest read_of(uint64_t tag) {
    return {.op = IoOp::kRead, .file = file_, .memory = memory_.data(), .bytes = kBytes, .tag = tag};
  }
  bool was_read() const { return memory_.data()[0] != std::byte{0}; }

  const TempFolder folder_;
  const AlignedBuffer memory_{kBytes};
  const int file_;
};

TEST_F(RefusedRequests, end_with_the_kernels_error_and_never_run) {
  const auto queue = make_io_queue_uring({.depth = 2});
  IoCompletion done;
  std::thread([&] {
    forbid({.number = SYS_io_uring_enter, .error_number = ENOMEM});
    for (const uint64_t tag : {5, 6, 7}) {
      queue->submit(read_of(tag));
      ASSERT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
      EXPECT_EQ(done.tag, tag);
      EXPECT_EQ(done.result, -ENOMEM);
      EXPECT_EQ(queue->in_flight(), 0);
    }
  }).join();
  queue->submit({.op = IoOp::kSync, .file = file_, .tag = 8});  // this thread may enter
  ASSERT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
  EXPECT_EQ(done.tag, 8u);
  EXPECT_EQ(done.result, 0);
  EXPECT_FALSE(was_read()) << "into memory that was given up";
}

TEST_F(RefusedRequests, leave_room_for_as_many_others) {
  const auto queue = make_io_queue_uring({.depth = 2});
  std::array<IoCompletion, 2> done;
  std::thread([&] {
    forbid({.number = SYS_io_uring_enter, .error_number = ENOMEM});
    for (const uint64_t tag : {1, 2}) queue->submit(read_of(tag));
    queue->flush();
  }).join();
  EXPECT_EQ(queue->in_flight(), 2) << "they are still to be reported";
  EXPECT_EQ(queue->poll(done, Wait::kNo), 2u);
  for (const uint64_t tag : {3, 4}) queue->submit(read_of(tag));
  for (size_t ended = 0; ended < 2;) ended += queue->poll(std::span(done).subspan(ended), Wait::kUntilOne);
  for (const IoCompletion& each : done) EXPECT_EQ(each.result, kBytes);
}

TEST_F(RefusedRequests, are_not_those_alone_that_the_queues_end_drops) {
  auto queue = make_io_queue_uring({.depth = 2});
  queue->submit(read_of(1));  // and never flushed
  queue.reset();
  EXPECT_FALSE(was_read());
}

TEST_F(UringQueue, waits_though_poll_is_refused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::array<std::byte, 5> memory{};
  auto queue = make_io_queue_uring({.depth = 2});
  std::atomic<bool> waits = false;
  std::thread waiting([&] {
#ifdef SYS_poll
    forbid({.number = SYS_poll, .error_number = ENOMEM});
#else
    forbid({.number = SYS_ppoll, .error_number = ENOMEM});
#endif
    IoCompletion done;
    queue->submit({.op = IoOp::kRead, .file = ends[0], .memory = memory.data(), .bytes = 5});
    queue->flush();
    waits = true;
    EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 0u) << "an interrupt ends it";
    EXPECT_EQ(write(ends[1], "12345", 5), 5);
    EXPECT_EQ(queue->poll({&done, 1}, Wait::kUntilOne), 1u);
    EXPECT_EQ(done.result, 5);
  });
  while (!waits) std::this_thread::yield();
  queue->interrupt();
  waiting.join();
  for (int end : ends) close(end);
}

char state_of(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string number, name;
  char state = '?';
  stat >> number >> name >> state;
  return state;
}

TEST_F(UringQueue, its_end_sleeps_while_it_waits_though_an_interrupt_is_pending) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::array<std::byte, 5> memory{};
  auto queue = make_io_queue_uring({.depth = 2});
  queue->submit({.op = IoOp::kRead, .file = ends[0], .memory = memory.data(), .bytes = 5});
  queue->flush();
  queue->interrupt();
  std::atomic<pid_t> thread = 0;
  std::thread other([&] {
    thread = gettid();
    queue.reset();
  });
  while (thread == 0) std::this_thread::yield();
  bool sleeps = false;
  for (int looks = 0; looks < 20000 && !sleeps; ++looks, std::this_thread::yield()) sleeps = state_of(thread) == 'S';
  EXPECT_TRUE(sleeps) << "it spins";
  EXPECT_EQ(write(ends[1], "12345", 5), 5);
  other.join();
  EXPECT_EQ(memory[4], std::byte{'5'});
  for (int end : ends) close(end);
}

}  // namespace
}  // namespace sluice
