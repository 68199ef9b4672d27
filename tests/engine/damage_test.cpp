// Damaged records, failing requests, short and reordered transfers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <vector>

#include "engine/update_pass.h"
#include "swap/store_format.h"
#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/flip_byte.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Damage : public Lifecycle {
 protected:
  std::filesystem::path file() const { return folder_.path() / "sluice-0.swap"; }
  void run_a_step_and_damage_its_records(const EngineOptions& with) const;
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

// Of all slots of a store.
int64_t bytes_of_records(const Plan& plan) {
  int64_t bytes = 0;
  for (const UseRow& row : plan.uses) bytes += row.use.ends_with("two slots") ? row.bytes : 0;
  return bytes;
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

void Damage::run_a_step_and_damage_its_records(const EngineOptions& with) const {
  int64_t records_bytes = 0;
  {
    auto running = engine(with);
    step(*running);
    running->drain();
    records_bytes = bytes_of_records(running->plan());
  }
  damage(file(), records_bytes);
}

TEST_F(Damage, a_flipped_bit_is_named_and_never_trained_on) {
  for (HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
    EngineOptions with = options();
    put_records(with.plan, home);
    run_a_step_and_damage_its_records(with);
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

TEST_F(Damage, is_found_before_a_step_begins_where_all_records_are_verified_first) {
  for (const HomeKind home : {HomeKind::kDevice, HomeKind::kNvme}) {
    EngineOptions with = options();
    put_records(with.plan, home);
    run_a_step_and_damage_its_records(with);
    with.open = OpenMode::kResume;
    EXPECT_NO_THROW(engine(with)) << "each is verified as it is used";
    with.verify = EngineOptions::Verify::kAllFirst;
    EXPECT_THROW(engine(with), CorruptionError) << name_of(home);
  }
}

TEST_F(Damage, is_found_by_whoever_reads_a_parameter_or_takes_digests) {
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  run_a_step_and_damage_its_records(with);
  with.open = OpenMode::kOpen;
  std::vector<float> value(1);
  EXPECT_THROW(engine(with)->read_master(0, 0, value), CorruptionError);
  EXPECT_THROW(engine(with)->digests(), CorruptionError);
  const auto reader = engine(with);
  std::vector<std::byte> weights(static_cast<size_t>(2 * reader->geometry().parameters()[0].elements));
  EXPECT_THROW(reader->read(0, weights), CorruptionError);
}

TEST_F(Damage, of_weights_is_found_by_an_evaluation_that_no_update_precedes) {
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  run_a_step_and_damage_its_records(with);
  with.open = OpenMode::kResume;
  auto resumed = engine(with);
  int turns = 0;
  EXPECT_THAT(message_of<CorruptionError>([&] { resumed->evaluate(1, [&turns](Use&) { ++turns; }); }),
              HasSubstr("weights"));
  EXPECT_EQ(turns, 0) << "computed with what was not verified";
}

TEST_F(Damage, of_a_scratch_extent_is_not_mistaken_for_another_one_with_the_same_bytes) {
  const std::vector<std::byte> bytes(4096, std::byte{7});
  EXPECT_NE(scratch_sum(1, bytes), scratch_sum(2, bytes));
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
  for (const IoBackend backend : backends_here()) {
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

TEST_F(Damage, what_only_tells_is_still_told_after_a_failure) {
  const auto faults = std::make_shared<Faults>();
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  with.store.make_queue = faulty_queue_factory(faults);
  auto running = engine(with);
  step(*running);
  running->drain();
  const int64_t written = running->written_bytes();
  faults->list = {{.op = IoOp::kRead, .nth = faults->reads, .times = 1000000, .error_number = EIO}};
  EXPECT_THROW(step(*running), IoError);
  EXPECT_EQ(running->step(), 1);
  EXPECT_EQ(running->committed().step, 1);
  EXPECT_EQ(running->written_bytes(), written);
  EXPECT_NO_THROW(running->abort_step());
  EXPECT_THROW(running->finish_step(), IoError);
  EXPECT_THROW(running->drain(), IoError);
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

// A queue that breaks as a whole when so many more requests have come: what is in flight then is never reported.
class BreakingQueue : public IoQueue {
 public:
  struct Break {
    std::atomic<int64_t> left = INT64_MAX / 2;
    std::exception_ptr error;
  };
  BreakingQueue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Break> broken)
      : IoQueue(inner->depth()), inner_(std::move(inner)), broken_(std::move(broken)) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    --broken_->left;
    inner_->submit(request);
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    if (broken_->left <= 0) std::rethrow_exception(broken_->error);
    return inner_->poll(completions, wait);
  }
  std::unique_ptr<IoQueue> inner_;
  std::shared_ptr<Break> broken_;
};

class BrokenQueue : public Damage {
 protected:
  // Breaks it in the middle of a step.
  template <class Error>
  void expect_to_end_the_run(const Error& error) {
    const auto broken = std::make_shared<BreakingQueue::Break>();
    broken->error = std::make_exception_ptr(error);
    EngineOptions with = options();
    with.store.make_queue = [broken](const IoQueueOptions& queue) -> std::unique_ptr<IoQueue> {
      return std::make_unique<BreakingQueue>(make_io_queue(queue), broken);
    };
    put_records(with.plan, HomeKind::kNvme);
    auto running = engine(with);
    step(*running);
    running->drain();  // what was read ahead is read again: the next requests are reads
    broken->left = 3;
    EXPECT_THROW(step(*running), Error);
    EXPECT_THROW(running->drain(), Error);
    EXPECT_EQ(running->committed().step, 1);
    running.reset();
    broken->left = INT64_MAX / 2;
    with.open = OpenMode::kOpen;
    EXPECT_EQ(finish(*engine(with)).state_crc32c, expected_.state_crc32c);
  }
};

TEST_F(BrokenQueue, ends_the_step_with_its_error_and_a_resume_ends_the_same) {
  expect_to_end_the_run(IoError({.action = "io_uring_enter", .path = "io_uring", .error_number = ENXIO}));
}

TEST_F(BrokenQueue, ends_the_run_too_where_it_has_no_memory) { expect_to_end_the_run(std::bad_alloc()); }

}  // namespace
}  // namespace sluice::testing
