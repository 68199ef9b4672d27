// Damaged records, failing requests, short and reordered transfers.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/faulty_queue.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Damage = Lifecycle;

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
      for (const UseRow& row : running->plan().uses) records_bytes += row.tier == Tier::kNvme ? row.bytes : 0;
    }
    damage(folder_.path() / "sluice-0.swap", records_bytes);
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

}  // namespace
}  // namespace sluice::testing
