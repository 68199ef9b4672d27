// Damaged records, failing requests, short and reordered transfers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "swap/store_format.h"
#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/flip_byte.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Damage : public Lifecycle {
 protected:
  std::filesystem::path file() const { return folder_.path() / "sluice-0.swap"; }
};

Superblock superblock(const std::filesystem::path& file, int index) {
  Superblock found;
  std::ifstream bytes(file, std::ios::binary);
  bytes.seekg(kSuperblockOffset[index]);
  EXPECT_TRUE(bytes.read(reinterpret_cast<char*>(&found), sizeof found));
  return found;
}
int newest_superblock(const std::filesystem::path& file) {
  return superblock(file, 0).generation > superblock(file, 1).generation ? 0 : 1;
}

// Damages every page of every slot: records are the file's last bytes.
void damage(const std::filesystem::path& file, int64_t records_bytes) {
  const int fd = open(file.c_str(), O_RDWR);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
  for (int64_t at = size - records_bytes; at < size; at += 4096) {
    char byte = 0;
    if (pread(fd, &byte, 1, at) == 1) {
      byte = static_cast<char>(byte ^ 0x10);
      EXPECT_EQ(pwrite(fd, &byte, 1, at), 1);
    }
  }
  close(fd);
}

TEST_F(Damage, a_flipped_bit_is_named_and_never_trained_on) {
  for (HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
    EngineOptions with = options();
    put_records(with.plan, home);
    int64_t records_bytes = 0;
    {
      auto running = engine(with);
      step(*running);
      running->drain();
      for (const UseRow& row : running->plan().uses) records_bytes += row.use.ends_with("two slots") ? row.bytes : 0;
    }
    damage(file(), records_bytes);
    with.open = OpenMode::kResume;
    try {
      auto resumed = engine(with);
      step(*resumed);
      step(*resumed);
      FAIL();
    } catch (const CorruptionError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk"), HasSubstr("expected"), HasSubstr("sluice-0.swap")));
    }
  }
}

TEST_F(Damage, of_the_newest_superblock_or_table_costs_that_step_and_no_bit) {
  for (const bool of_table : {false, true}) {
    SCOPED_TRACE(of_table ? "table" : "superblock");
    EngineOptions with = options();
    with.plan.commit_interval = 1;
    {
      auto running = engine(with);
      for (int i = 0; i < 3; ++i) step(*running);
      running->drain();
    }
    const int newest = newest_superblock(file());
    flip_byte(file(), of_table ? superblock(file(), newest).table_offset + 30 : kSuperblockOffset[newest] + 30);
    with.open = OpenMode::kResume;
    auto resumed = engine(with);
    EXPECT_EQ(resumed->step(), 2);
    const RunRecord end = finish(*resumed);
    EXPECT_EQ(end.weights_crc32c, expected_.weights_crc32c);
    EXPECT_EQ(end.state_crc32c, expected_.state_crc32c);
    resumed.reset();
    std::filesystem::remove(file());
  }
}

TEST_F(Damage, of_both_superblocks_is_no_reason_to_begin_a_run_anew_that_had_begun) {
  EngineOptions with = options();
  {
    auto running = engine(with);
    step(*running);
    running->drain();
  }
  for (const int64_t offset : kSuperblockOffset) flip_byte(file(), offset + 30);
  const auto written = std::filesystem::last_write_time(file());
  for (const OpenMode mode : {OpenMode::kOpen, OpenMode::kResume}) {
    with.open = mode;
    EXPECT_THAT(
        message_of<CorruptionError>([&] { engine(with); }),
        AllOf(HasSubstr(file().string()), HasSubstr("steps were committed"), HasSubstr("start over with a new store")));
  }
  EXPECT_EQ(std::filesystem::last_write_time(file()), written);
}

TEST_F(Damage, a_failing_request_stops_the_run_with_its_error_and_a_resume_ends_the_same) {
  for (IoBackend backend : {IoBackend::kUring, IoBackend::kThreads}) {
    for (int64_t nth = 3; nth < 400; nth += 37) {
      for (IoOp op : {IoOp::kRead, IoOp::kWrite, IoOp::kSync}) {
        EngineOptions with = options();
        with.store.queue.backend = backend;
        auto faults = std::make_shared<Faults>();
        faults->list = {{.op = op, .nth = op == IoOp::kSync ? nth / 30 : nth, .error_number = EIO}};
        with.store.make_queue = faulty_queue_factory(faults);
        bool failed = false;
        try {
          auto running = engine(with);
          finish(*running);
        } catch (const IoError& error) {
          failed = true;
          EXPECT_EQ(error.details().error_number, EIO);
          EXPECT_THAT(error.what(), HasSubstr("sluice-0.swap"));
        }
        EXPECT_TRUE(failed || faults->reads <= nth || faults->writes <= nth || faults->syncs <= nth / 30);
        EngineOptions again = options();
        again.open = OpenMode::kResume;
        auto resumed = engine(again);
        EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
      }
    }
  }
}

TEST_F(Damage, short_and_reordered_transfers_change_no_bit) {
  for (Order order : {Order::kReversed, Order::kShuffled}) {
    EngineOptions with = options();
    auto faults = std::make_shared<Faults>();
    faults->order = order;
    for (int64_t nth = 0; nth < 400; nth += 7) {
      faults->list.push_back({.op = nth % 2 ? IoOp::kRead : IoOp::kWrite, .nth = nth, .short_bytes = 700});
    }
    with.store.make_queue = faulty_queue_factory(faults);
    auto running = engine(with);
    EXPECT_EQ(finish(*running), expected_);
  }
}

// A queue that breaks as a whole (io_uring_enter fails) when so many more requests have come: what is in flight then is
// never reported.
class BreakingQueue : public IoQueue {
 public:
  BreakingQueue(std::unique_ptr<IoQueue> inner, std::shared_ptr<std::atomic<int64_t>> left)
      : IoQueue(inner->depth()), inner_(std::move(inner)), left_(std::move(left)) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    --*left_;
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    if (*left_ <= 0) throw IoError({.action = "io_uring_enter", .path = "io_uring", .error_number = ENXIO});
    return inner_->poll(completions, wait);
  }
  std::unique_ptr<IoQueue> inner_;
  std::shared_ptr<std::atomic<int64_t>> left_;
};

TEST_F(Damage, a_queue_that_breaks_ends_the_step_with_its_error_and_a_resume_ends_the_same) {
  const auto left = std::make_shared<std::atomic<int64_t>>(INT64_MAX / 2);
  EngineOptions with = options();
  with.store.make_queue = [left](const IoQueueOptions& queue) -> std::unique_ptr<IoQueue> {
    return std::make_unique<BreakingQueue>(make_io_queue(queue), left);
  };
  put_records(with.plan, HomeKind::kNvme);
  auto running = engine(with);
  step(*running);
  running->drain();  // what was read ahead is read again: the next requests are reads
  *left = 3;
  EXPECT_THROW(step(*running), IoError);
  EXPECT_THROW(running->drain(), IoError);
  running.reset();
  *left = INT64_MAX / 2;
  with.open = OpenMode::kOpen;
  EXPECT_EQ(finish(*engine(with)).state_crc32c, expected_.state_crc32c);
}

}  // namespace
}  // namespace sluice::testing
