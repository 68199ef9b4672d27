// A throttled queue keeps the contract of waits (tests/contract/io_queue_test.cpp), also while it holds back what the
// real queue has told already. And what a probe of drives of unlike speeds gives.
#include "bench/timed_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "core/bytes.h"
#include "engine/machine_probe.h"
#include "swap/store_format.h"
#include "tests/fakes/file_size_limit.h"
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

TEST(ThrottledDrives,
     that_a_store_gives_other_shares_than_their_speeds_wait_for_the_drive_that_has_most_to_do_for_its_speed) {
  const TempFolder first, second;
  const FileSizeLimit short_files(16 * kMiB);
  StoreOptions store{.folder = first.path(), .more_folders = {second.path()}};
  store.queue.depth = 8;
  RequestTimes times;
  store.make_queue = timed_queue_factory(&times, {.folders = {first.path(), second.path()}, .gb_per_s = {0.5, 0.05}});
  MachineSpeeds as_fast, alike;
  probe_drives(store, as_fast);
  store.drive_weights = {1, 1};
  probe_drives(store, alike);
  for (const auto speed : {&MachineSpeeds::read_gb_per_s, &MachineSpeeds::write_gb_per_s}) {
    EXPECT_LT(alike.*speed, 2 * 0.07) << "the second drive has half of all";
    EXPECT_GT(as_fast.*speed, 2 * alike.*speed);
  }
}

}  // namespace
}  // namespace sluice
