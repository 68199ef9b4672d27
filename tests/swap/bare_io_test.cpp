// Bare requests: how drives share a queue and a memory, what errors say, and that scratch files leave nothing behind.
#include "swap/bare_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/bytes.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/simulated_drives.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr int64_t kBlock = 4096;
constexpr StoreWords kWords{.folders = " (--folder)", .less_room = "; a smaller --size takes less"};

// Ranges of files that only a simulated queue meets, sized in proportion to these numbers as a store's are.
std::vector<BareRange> ranges_of(const std::vector<double>& weights) {
  std::vector<BareRange> ranges;
  for (const double weight : weights) {
    ranges.push_back({.file = static_cast<int>(ranges.size()), .bytes = std::lround(640 * weight) * kBlock});
  }
  return ranges;
}

class BareDrives : public testing::Test {
 protected:
  // GB/s of a run over drives of these speeds, with memory for so many blocks.
  double run(std::vector<double> gb_per_s, int64_t blocks, int64_t blocks_to_move = 1000) {
    const Arena memory(blocks * kBlock);
    const auto drives = static_cast<int>(gb_per_s.size());
    drives_->gb_per_s = std::move(gb_per_s);
    const auto queue = simulated_drives_factory(drives_)({.depth = 64 * drives});
    const int64_t bytes = blocks_to_move * kBlock;
    run_bare(*queue, {.ranges = ranges_of(drives_->gb_per_s),
                      .bytes = bytes,
                      .block_bytes = kBlock,
                      .depth = 64,
                      .memory = memory.span().first(static_cast<size_t>(blocks * kBlock))});
    return static_cast<double>(bytes) / drives_->now_ns;
  }

  // 640 blocks both ways on one drive, with so many requests in flight.
  void alternate(int depth) {
    const Arena memory(depth * kBlock);
    const auto queue = simulated_drives_factory(drives_)({.depth = depth});
    run_bare(*queue, {.op = BareOp::kAlternate,
                      .ranges = ranges_of({1}),
                      .bytes = 640 * kBlock,
                      .block_bytes = kBlock,
                      .depth = depth,
                      .memory = memory.span()});
  }

  std::shared_ptr<SimulatedDrives> drives_ = std::make_shared<SimulatedDrives>();
};

TEST_F(BareDrives, that_share_less_memory_than_the_queue_is_deep_all_work_all_the_time) {
  EXPECT_GT(run({1, 1, 1}, 6), 0.98 * 3);
  std::vector<int> served(3);
  for (const SimulatedDrives::Served& each : drives_->served) ++served[static_cast<size_t>(each.drive)];
  EXPECT_THAT(served, testing::Each(testing::AllOf(testing::Ge(332), testing::Le(335))));
}

TEST_F(BareDrives, of_different_speeds_give_their_sum) { EXPECT_GT(run({1, 0.1}, 4), 0.95 * 1.1); }

TEST_F(BareDrives, of_different_speeds_give_their_sum_with_all_requests_in_flight_at_once) {
  EXPECT_GT(run({1, 0.1}, 128, 110), 0.95 * 1.1);
}

TEST_F(BareDrives, of_different_speeds_have_their_own_told_however_late_the_slow_one_ends) {
  drives_->gb_per_s = {1, 0.01};
  const Arena memory(2 * 64 * kBlock);
  const auto queue = simulated_drives_factory(drives_)({.depth = 128});
  const BareEnd end = run_bare(*queue, {.ranges = ranges_of({1, 1}),
                                        .bytes = INT64_MAX,
                                        .block_bytes = kBlock,
                                        .depth = 64,
                                        .memory = memory.span(),
                                        .limit_ns = 4'000'000,
                                        .clock = [this] { return static_cast<int64_t>(drives_->now_ns); }});
  EXPECT_NEAR(end.range_gb_per_s.at(0), 1, 0.05);
  EXPECT_NEAR(end.range_gb_per_s.at(1), 0.01, 5e-4);
  EXPECT_LT(end.gb_per_s(), 0.5) << "it ends when the slow one does";
}

TEST_F(BareDrives, have_their_share_to_the_4096_bytes_whatever_the_size_of_a_block) {
  const Arena memory(2 * 16 * kBlock);
  const auto queue = simulated_drives_factory(drives_)({.depth = 2});
  const BareRun run{
      .ranges = ranges_of({1, 0.1}), .bytes = 110 * kBlock, .block_bytes = 16 * kBlock, .memory = memory.span()};
  EXPECT_EQ(run_bare(*queue, run).bytes, 110 * kBlock);
  std::vector<int64_t> moved(2);
  for (const SimulatedDrives::Served& each : drives_->served) moved[static_cast<size_t>(each.drive)] += each.bytes;
  EXPECT_THAT(moved, testing::ElementsAre(100 * kBlock, 10 * kBlock));
}

TEST_F(BareDrives, move_small_blocks_both_ways_in_turns_of_neighbours_from_places_apart) {
  alternate(64);
  ASSERT_EQ(drives_->served.size(), 640u);
  int64_t read_from = 0, written_from = 320 * kBlock;
  for (size_t i = 0; i < drives_->served.size(); ++i) {
    const SimulatedDrives::Served& each = drives_->served[i];
    EXPECT_EQ(each.op, i / 32 % 2 == 0 ? IoOp::kRead : IoOp::kWrite);  // 128 KiB each
    int64_t& from = each.op == IoOp::kRead ? read_from : written_from;
    EXPECT_EQ(each.offset, from);
    from += kBlock;
  }
}

TEST_F(BareDrives, have_as_much_in_flight_either_way_with_few_requests_in_flight) {
  alternate(8);
  ASSERT_EQ(drives_->served.size(), 640u);
  for (size_t i = 0; i < drives_->served.size(); ++i) {
    EXPECT_EQ(drives_->served[i].op, i / 4 % 2 == 0 ? IoOp::kRead : IoOp::kWrite);
  }
}

TEST_F(BareDrives, that_outnumber_the_requests_of_a_run_get_one_each) {
  const Arena memory(8 * kBlock);
  const auto queue = simulated_drives_factory(drives_)({.depth = 8});
  const BareRun run{
      .ranges = ranges_of({1, 1, 1, 1}), .bytes = 3 * kBlock, .block_bytes = kBlock, .memory = memory.span()};
  EXPECT_EQ(run_bare(*queue, run).bytes, 3 * kBlock);
  std::set<int> files;
  for (const SimulatedDrives::Served& each : drives_->served) files.insert(each.drive);
  EXPECT_EQ(files.size(), 3u);
}

TEST_F(BareDrives, come_to_every_block_of_memory_before_they_come_to_one_again) {
  run({1}, 100, 1000);  // 64 requests in flight
  ASSERT_EQ(drives_->served.size(), 1000u);
  for (size_t first = 0; first < 1000; first += 100) {
    std::set<const void*> blocks;
    for (size_t i = first; i < first + 100; ++i) blocks.insert(drives_->served[i].memory);
    EXPECT_EQ(blocks.size(), 100u);
  }
}

TEST_F(BareDrives, without_memory_for_a_block_of_each_are_a_programmers_error) {
  EXPECT_THROW(run({1, 1, 1}, 2), std::logic_error);
}

TEST_F(BareDrives, in_blocks_of_nothing_or_beside_requests_of_others_are_a_programmers_error) {
  const Arena memory(2 * kBlock);
  const auto queue = simulated_drives_factory(drives_)({.depth = 2});
  BareRun run{.ranges = ranges_of({1}), .bytes = kBlock, .block_bytes = 0, .memory = memory.span()};
  EXPECT_THROW(run_bare(*queue, run), std::logic_error);
  run.block_bytes = kBlock;
  queue->submit({.file = 0, .memory = memory.at(kBlock), .bytes = kBlock, .tag = 1000});
  EXPECT_THROW(run_bare(*queue, run), std::logic_error);
  EXPECT_EQ(queue->in_flight(), 1);
}

TEST(BareRequest, that_fails_names_its_file_and_its_errno_or_how_much_has_moved) {
  const TempFolder folder;
  const ScratchFile scratch(folder.path(), 4 * kBlock);
  const Arena memory(kBlock);
  const auto failure = [&](Fault fault) {
    auto faults = std::make_shared<Faults>();
    faults->list = {fault};
    const auto queue = make_faulty_queue(make_io_queue_threads({.depth = 1}), faults);
    const BareRun run{.ranges = {scratch.whole()}, .bytes = kBlock, .block_bytes = kBlock, .memory = memory.span()};
    return failure_of([&] { run_bare(*queue, run); });
  };
  const IoFailure failed = failure({.error_number = ENXIO});
  EXPECT_EQ(failed.details.error_number, ENXIO);
  EXPECT_EQ(failed.details.path, (folder.path() / "(scratch file)").string());
  const IoFailure cut = failure({.short_bytes = 512});
  EXPECT_EQ(cut.details.error_number, 0);
  EXPECT_THAT(cut.message, HasSubstr("512 bytes moved"));
}

// One that fails, beside others that do not, and a poll that does: in whichever order they are reported.
TEST(BareRequest, that_fails_ends_its_run_when_no_other_one_is_in_flight) {
  const TempFolder folder;
  const ScratchFile scratch(folder.path(), 64 * kBlock);
  for (const IoBackend backend : {IoBackend::kAuto, IoBackend::kThreads}) {
    for (const Order order : {Order::kAsFinished, Order::kReversed}) {
      const Arena memory(16 * kBlock);
      auto faults = std::make_shared<Faults>();
      faults->order = order;
      const auto queue = make_faulty_queue(make_io_queue({.backend = backend, .depth = 16}), faults);
      const BareRun run{
          .ranges = {scratch.whole()}, .bytes = 64 * kBlock, .block_bytes = kBlock, .memory = memory.span()};
      faults->list = {{.nth = faults->reads + 20, .error_number = EIO}};
      EXPECT_EQ(failure_of([&] { run_bare(*queue, run); }).details.error_number, EIO);
      EXPECT_EQ(queue->in_flight(), 0);
      faults->list.clear();
      faults->poll_that_throws = faults->polls + 1;
      EXPECT_THROW(run_bare(*queue, run), IoError);
      EXPECT_EQ(queue->in_flight(), 0);
      // The tags of a smaller run after it are its own.
      const BareRun smaller{
          .ranges = {scratch.whole()}, .bytes = 16 * kBlock, .block_bytes = 8 * kBlock, .memory = memory.span()};
      EXPECT_EQ(run_bare(*queue, smaller).bytes, 16 * kBlock);
    }
  }
}

// A process may be killed at any moment.
TEST(ScratchFiles, never_have_a_name_where_the_file_system_knows_files_without) {
  const TempFolder folder;
  const int nameless = open(folder.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system knows only files with names";
  close(nameless);
  const int names = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(inotify_add_watch(names, folder.path().c_str(), IN_CREATE), 0);
  const ScratchFile scratch(folder.path(), kBlock);
  alignas(inotify_event) char event[4096];
  EXPECT_EQ(read(names, event, sizeof event), -1) << "a name came into the folder";
  EXPECT_EQ(errno, EAGAIN);
  close(names);
}

TEST(ScratchFiles, leave_no_file_where_there_is_no_direct_io) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kRam, folder.path() / "ram", 0);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  EXPECT_EQ(failure_of([&] { ScratchFile(drive.path(), kBlock); }).details.error_number, EINVAL);
  EXPECT_TRUE(std::filesystem::is_empty(drive.path()));
}

TEST(ScratchFiles, make_no_folder) {
  const TempFolder folder;
  const ScratchFile scratch(folder.path() / "a" / "b", kBlock);
  EXPECT_EQ(std::filesystem::path("a/b/(scratch file)"), scratch.path().lexically_relative(folder.path()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ScratchFiles, without_room_say_how_much_is_needed_and_free) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "small", kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const IoFailure failure = failure_of([&] { ScratchFile(drive.path(), 2 * kMiB, kWords); });
  EXPECT_EQ(failure.details.error_number, ENOSPC);
  EXPECT_THAT(failure.message, testing::AllOf(HasSubstr("2097152 bytes (2.0 MiB) are needed, 1048576 bytes (1.0 MiB)"),
                                              HasSubstr("a larger drive (--folder); a smaller --size takes less"),
                                              testing::Not(HasSubstr("ext4")), testing::Not(HasSubstr("::"))));
  EXPECT_TRUE(std::filesystem::is_empty(drive.path()));
}

TEST(ScratchFiles, have_room_together_in_half_of_what_is_free) {
  const TempFolder folder;
  const MountedDrive small(MountedDrive::Kind::kMemory, folder.path() / "small", 6 * kMiB);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const MountedDrive large(MountedDrive::Kind::kMemory, folder.path() / "large", 64 * kMiB);
  const auto bytes_in = [](const std::vector<std::filesystem::path>& folders) {
    return scratch_bytes_in(folders, 16 * kMiB);
  };
  EXPECT_EQ(bytes_in({large.path()}), 16 * kMiB);
  EXPECT_EQ(bytes_in({small.path()}), 3 * kMiB);
  EXPECT_EQ(bytes_in({large.path(), small.path()}), 3 * kMiB);
  EXPECT_EQ(bytes_in({small.path(), large.path(), small.path() / "not there yet"}), kMiB) << "whole ones";
  const FileSizeLimit limit(2 * kMiB);
  EXPECT_EQ(bytes_in({large.path()}), 2 * kMiB);
}

TEST(ScratchFiles, beyond_the_limit_of_files_are_refused_and_leave_nothing) {
  const TempFolder folder;
  const FileSizeLimit limit(kMiB);
  const IoFailure failure = failure_of([&] { ScratchFile(folder.path(), 2 * kMiB); });
  EXPECT_EQ(failure.details.error_number, EFBIG);
  EXPECT_THAT(failure.message, HasSubstr("ulimit -f"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_NO_THROW(ScratchFile(folder.path(), kMiB));
}

TEST(ScratchFiles, on_a_drive_that_is_read_only_say_that_it_must_be_writable) {
  const TempFolder folder;
  MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "locked", kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  drive.make_read_only();
  const IoFailure failure = failure_of([&] { ScratchFile(drive.path(), kBlock, kWords); });
  EXPECT_EQ(failure.details.error_number, EROFS);
  EXPECT_THAT(failure.message, testing::AllOf(HasSubstr("writable"), HasSubstr("another folder (--folder)"),
                                              testing::Not(HasSubstr("ext4"))));
}

TEST(MeasureDrive, takes_half_of_a_small_drive_and_nothing_of_a_tiny_one) {
  const TempFolder folder;
  for (const int64_t bytes : {7 * kMiB, 24 * kMiB}) {
    const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / std::to_string(bytes), bytes);
    if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
    const std::optional<DriveSpeed> speed = measure_drives({.folder = drive.path(), .queue = {}}).front();
    EXPECT_EQ(speed.has_value(), bytes > 8 * kMiB);
    EXPECT_GT(speed.value_or(DriveSpeed{1, 1}).both_gb_per_s(), 0);
    EXPECT_TRUE(std::filesystem::is_empty(drive.path()));
  }
}

}  // namespace
}  // namespace sluice
