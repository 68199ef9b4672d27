// A throttled queue keeps the contract of waits (tests/contract/io_queue_test.cpp), also while it holds back what the
// real queue has told already.
#include "bench/timed_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "swap/store_format.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

constexpr uint32_t kBlock = 4096;

class ThrottledQueue : public testing::Test {
 protected:
  ThrottledQueue() { EXPECT_EQ(ftruncate(file_, kBlock), 0); }
  ~ThrottledQueue() override {
    queue_.reset();
    close(file_);
  }
  // A request that ends in `ms`.
  void submit(double ms) {
    queue_ = timed_queue_factory(&times_, {.folders = {folder_.path()}, .gb_per_s = {kBlock / (ms * 1e6)}})(
        {.backend = IoBackend::kThreads, .depth = 4});
    queue_->submit(
        {.op = IoOp::kRead, .file = file_, .memory = memory_.data(), .bytes = kBlock, .offset = 0, .tag = 7});
    queue_->flush();
  }
  size_t wait() {
    IoCompletion done;
    return queue_->poll({&done, 1}, Wait::kUntilOne);
  }

  TempFolder folder_;
  RequestTimes times_;
  AlignedBuffer memory_{kBlock};
  int file_ = open((folder_.path() / "file").c_str(), O_RDWR | O_CREAT, 0644);
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(ThrottledQueue, is_interrupted_while_it_holds_a_completion_back) {
  submit(1e7);  // hours
  for (int again = 0; again < 3; ++again) {
    queue_->interrupt();
    EXPECT_EQ(wait(), 0u);
  }
  EXPECT_EQ(queue_->in_flight(), 1);
}

TEST_F(ThrottledQueue, remembers_an_interrupt_once) {
  submit(1e7);
  queue_->interrupt();
  queue_->interrupt();
  EXPECT_EQ(wait(), 0u);
  const TempFolder elsewhere;
  const int at_once = open((elsewhere.path() / "file").c_str(), O_RDWR | O_CREAT, 0644);
  queue_->submit(
      {.op = IoOp::kRead, .file = at_once, .memory = memory_.data(), .bytes = kBlock, .offset = 0, .tag = 8});
  queue_->flush();
  EXPECT_EQ(wait(), 1u);
  close(at_once);
  queue_->interrupt();
  EXPECT_EQ(wait(), 0u);
}

}  // namespace
}  // namespace sluice
