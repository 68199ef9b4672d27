// One contract for every IoQueue: io_uring with and without registered memory, threads, and the wrapper that tests use.
#include "swap/io_queue.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <thread>

#include "core/arena.h"
#include "core/bytes.h"
#include "tests/fakes/counting_new.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

constexpr int kDepth = 8;
constexpr uint32_t kBlock = 4096;

enum class Kind { kUring, kUringRegistered, kThreads, kWrapped };

class Queue : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kUring || GetParam() == Kind::kUringRegistered) skip_without_uring();
    if (IsSkipped()) return;
    file_ = open((folder_.path() / "file").c_str(), O_RDWR | O_CREAT | O_DIRECT, 0644);
    EXPECT_EQ(ftruncate(file_, 64 * kBlock), 0);
    queue_ = make();
  }
  void TearDown() override {
    queue_.reset();
    if (file_ >= 0) close(file_);
  }

  std::unique_ptr<IoQueue> make() {
    IoQueueOptions options{.depth = kDepth};
    switch (GetParam()) {
      case Kind::kUring:
        return make_io_queue_uring(options);
      case Kind::kUringRegistered:
        options.memory = {memory_.span()};
        return make_io_queue_uring(options);
      case Kind::kThreads:
        return make_io_queue_threads(options);
      case Kind::kWrapped:
        return make_faulty_queue(make_io_queue_threads(options), std::make_shared<Faults>());
    }
    return nullptr;
  }

  IoRequest request(IoOp op, int block, uint64_t tag) {
    return {.op = op,
            .file = file_,
            .memory = memory_.at(int64_t{block} * kBlock),
            .bytes = kBlock,
            .offset = static_cast<uint64_t>(block) * kBlock,
            .tag = tag};
  }
  IoCompletion one() {
    queue_->flush();
    IoCompletion done{.tag = UINT64_MAX, .result = INT64_MIN};
    EXPECT_EQ(queue_->poll({&done, 1}, Wait::kUntilOne), 1u);
    return done;
  }
  // Submits `op` on blocks [0, kDepth) and collects the results by tag.
  std::map<uint64_t, int64_t> run_all(IoOp op) {
    for (int block = 0; block < kDepth; ++block) queue_->submit(request(op, block, 100 + static_cast<uint64_t>(block)));
    queue_->flush();
    std::map<uint64_t, int64_t> results;
    std::array<IoCompletion, 3> done;  // fewer than there are
    while (queue_->in_flight() > 0) {
      const size_t count = queue_->poll(done, Wait::kUntilOne);
      for (const IoCompletion& each : std::span(done).first(count)) results[each.tag] = each.result;
    }
    return results;
  }
  void fill(uint8_t value) { std::fill_n(memory_.at(0), kDepth * kBlock, std::byte{value}); }

  TempFolder folder_;
  Arena memory_{kDepth * kBlock};
  int file_ = -1;
  std::unique_ptr<IoQueue> queue_;
};

TEST_P(Queue, moves_every_request_once_and_tells_which) {
  for (int block = 0; block < kDepth; ++block) std::fill_n(memory_.at(block * kBlock), kBlock, std::byte(block + 1));
  std::map<uint64_t, int64_t> expected;
  for (int block = 0; block < kDepth; ++block) expected[100 + static_cast<uint64_t>(block)] = kBlock;
  EXPECT_EQ(run_all(IoOp::kWrite), expected);
  fill(0);
  EXPECT_EQ(run_all(IoOp::kRead), expected);
  for (int block = 0; block < kDepth; ++block) {
    EXPECT_EQ(std::count(memory_.at(block * kBlock), memory_.at((block + 1) * kBlock), std::byte(block + 1)), kBlock);
  }
  EXPECT_EQ(queue_->in_flight(), 0);
}

TEST_P(Queue, a_completion_carries_its_own_result) {
  queue_->submit({.op = IoOp::kSync, .file = file_, .tag = 1});
  EXPECT_EQ(one().result, 0);
  IoRequest beyond = request(IoOp::kRead, 0, 2);
  beyond.offset = 1000 * kBlock;  // after the end of the file
  queue_->submit(beyond);
  EXPECT_EQ(one().result, 0);
  ASSERT_EQ(ftruncate(file_, 2 * kBlock + 512), 0);
  queue_->submit(request(IoOp::kRead, 2, 3));
  EXPECT_EQ(one().result, 512);
  IoRequest crooked = request(IoOp::kRead, 0, 4);
  crooked.offset = 100;  // direct I/O wants aligned offsets
  queue_->submit(crooked);
  const int64_t result = one().result;
  EXPECT_TRUE(result == -EINVAL || result == kBlock) << result;  // tmpfs takes it
  const int read_only = open((folder_.path() / "file").c_str(), O_RDONLY);
  IoRequest forbidden = request(IoOp::kWrite, 0, 5);
  forbidden.file = read_only;
  queue_->submit(forbidden);
  EXPECT_EQ(one().result, -EBADF);
  close(read_only);
}

TEST_P(Queue, refuses_more_requests_than_it_is_deep) {
  for (int block = 0; block < kDepth; ++block) queue_->submit(request(IoOp::kRead, block, 0));
  EXPECT_EQ(queue_->in_flight(), kDepth);
  EXPECT_THROW(queue_->submit(request(IoOp::kRead, 0, 0)), std::logic_error);
  EXPECT_THROW(queue_->submit({.op = IoOp::kRead, .file = file_}), std::logic_error);
}

TEST_P(Queue, does_not_wait_when_told_not_to) {
  IoCompletion done;
  EXPECT_EQ(queue_->poll({&done, 1}, Wait::kNo), 0u);
  queue_->submit(request(IoOp::kRead, 0, 7));
  queue_->flush();
  while (queue_->poll({&done, 1}, Wait::kNo) == 0) std::this_thread::yield();
  EXPECT_EQ(done.tag, 7u);
}

TEST_P(Queue, an_interrupt_from_another_thread_ends_a_wait_for_nothing) {
  for (int again = 0; again < 20; ++again) {
    std::thread other([this] { queue_->interrupt(); });
    IoCompletion done;
    EXPECT_EQ(queue_->poll({&done, 1}, Wait::kUntilOne), 0u);
    other.join();
  }
}

TEST_P(Queue, interrupts_while_nobody_waits_are_remembered_once) {
  queue_->interrupt();
  queue_->interrupt();
  IoCompletion done;
  EXPECT_EQ(queue_->poll({&done, 1}, Wait::kUntilOne), 0u);
  queue_->submit(request(IoOp::kRead, 0, 3));
  queue_->flush();
  EXPECT_EQ(queue_->poll({&done, 1}, Wait::kUntilOne), 1u);  // not ended early by the second one
}

TEST_P(Queue, completions_do_not_use_an_interrupt_up) {
  for (int again = 0; again < 100; ++again) {
    queue_->submit(request(IoOp::kRead, 1, 4));
    queue_->flush();
    queue_->interrupt();
    std::this_thread::yield();
    IoCompletion done;
    size_t ended = 0;
    // Once for the request, once for the interrupt, in either order: a lost interrupt would leave the second one
    // waiting.
    for (int polls = 0; polls < 2; ++polls) ended += queue_->poll({&done, 1}, Wait::kUntilOne);
    ASSERT_EQ(ended, 1u);
  }
}

TEST_P(Queue, serves_one_thread_after_another) {
  for (int again = 0; again < 4; ++again) {
    fill(static_cast<uint8_t>(again));
    std::thread([this] { run_all(IoOp::kWrite); }).join();
    fill(99);
    run_all(IoOp::kRead);
    EXPECT_EQ(memory_.at(5)[0], std::byte(again));
    std::thread([this] { queue_ = make(); }).join();  // made by a thread that has ended
  }
}

TEST_P(Queue, its_end_waits_for_what_still_uses_the_callers_memory) {
  constexpr int64_t kLarge = 4 * kMiB;  // long under way
  const Arena memory(kDepth * kLarge);
  const auto submit_all = [&](IoOp op) {
    for (int64_t i = 0; i < kDepth; ++i) {
      queue_->submit({.op = op,
                      .file = file_,
                      .memory = memory.at(i * kLarge),
                      .bytes = static_cast<uint32_t>(kLarge),
                      .offset = static_cast<uint64_t>(i * kLarge)});
    }
    queue_->flush();
  };
  std::fill_n(memory.at(0), memory.bytes(), std::byte{7});
  submit_all(IoOp::kWrite);
  IoCompletion done;
  while (queue_->in_flight() > 0) queue_->poll({&done, 1}, Wait::kUntilOne);
  for (int again = 0; again < 3; ++again) {
    submit_all(IoOp::kRead);
    queue_.reset();
    std::fill_n(memory.at(0), memory.bytes(), std::byte{9});
    queue_ = make();
    ASSERT_EQ(std::count(memory.at(0), memory.at(memory.bytes()), std::byte{9}), memory.bytes());
  }
}

// The wrapper is for tests and may allocate.
class RealQueue : public Queue {};

TEST_P(RealQueue, takes_no_heap_memory_while_it_works) {
  std::array<IoCompletion, kDepth> done;
  const auto round = [&](IoOp op) {
    for (int block = 0; block < kDepth; ++block) queue_->submit(request(op, block, 0));
    queue_->flush();
    while (queue_->in_flight() > 0) queue_->poll(done, Wait::kUntilOne);
  };
  round(IoOp::kWrite);
  const int64_t before = heap_allocations();
  for (int again = 0; again < 50; ++again) {
    round(IoOp::kWrite);
    round(IoOp::kSync);
    round(IoOp::kRead);
    queue_->interrupt();
    queue_->poll(done, Wait::kUntilOne);
  }
  EXPECT_EQ(heap_allocations(), before);
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& kind) {
  switch (kind.param) {
    case Kind::kUring:
      return "uring";
    case Kind::kUringRegistered:
      return "uring_registered";
    case Kind::kThreads:
      return "threads";
    case Kind::kWrapped:
      return "wrapped";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(contract, Queue,
                         testing::Values(Kind::kUring, Kind::kUringRegistered, Kind::kThreads, Kind::kWrapped),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(contract, RealQueue, testing::Values(Kind::kUring, Kind::kUringRegistered, Kind::kThreads),
                         name_of_kind);

}  // namespace
}  // namespace sluice
