#include <sys/stat.h>

#include <functional>

#include "core/bytes.h"
#include "swap/drive.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/swap/store_damage_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class StoreAtItsLimits : public testing::Test {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path(),
            .make_queue = faulty_queue_factory(faults_),
            .queue = {.depth = 8},
            .block_bytes = kMiB};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  int64_t blocks_of_file() const {
    struct stat status {};
    EXPECT_EQ(stat(store_path(folder_.path(), 0).c_str(), &status), 0);
    return status.st_blocks;
  }
  static void finish_one(RecordStore& store) {
    StoreCompletion done;
    while (store.poll({&done, 1}, Wait::kUntilOne) == 0) {
    }
    if (done.error) std::rethrow_exception(done.error);
  }

  TempFolder folder_;
  TestRun run_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
};

TEST_F(StoreAtItsLimits, after_a_rehearsed_write_the_step_before_is_not_offered) {
  const auto store = create();
  for (const int64_t step : {1, 2}) write_step(*store, run_, step);
  ASSERT_THAT(store->openable_steps(), ElementsAre(2, 1));
  const RecordId record{0, Group::kState};
  const AlignedBuffer buffer(run_.layout(record).bytes);
  store->rehearse_write(record, buffer.data(), 0);
  finish_one(*store);
  EXPECT_THAT(store->openable_steps(), ElementsAre(2));
}

TEST_F(StoreAtItsLimits, a_request_may_be_turned_away_as_often_again_once_it_has_made_progress) {
  const auto store = create();
  write_step(*store, run_, 0);
  constexpr int64_t kAway = 16;
  faults_->list = {{.op = IoOp::kRead, .nth = faults_->reads, .times = kAway, .error_number = EAGAIN},
                   {.op = IoOp::kRead, .nth = faults_->reads + kAway, .short_bytes = 8192},
                   {.op = IoOp::kRead, .nth = faults_->reads + kAway + 1, .times = kAway, .error_number = EAGAIN}};
  EXPECT_NO_THROW(read_verified(*store, run_, {0, Group::kState}));
}

// Whatever it is that refuses the space: the store that was there has not lost a byte, and takes no more room.
TEST_F(StoreAtItsLimits, a_creation_beyond_the_limit_of_files_leaves_the_store_that_it_would_replace) {
  write_step(*create(), run_, 4);
  const int64_t blocks = blocks_of_file();
  std::string message;
  {
    const FileSizeLimit limit(8192);
    message = failure_of([&] { create(); }).message;
  }
  EXPECT_THAT(message, AllOf(HasSubstr("ulimit -f"), HasSubstr("give a folder on a drive")));
  EXPECT_EQ(blocks_of_file(), blocks);
  expect_step(*open(), run_, 4);
}

TEST_F(StoreAtItsLimits, a_store_that_would_grow_beyond_the_limit_of_files_is_refused_and_stays_as_it_was) {
  write_step(*create(), run_, 4);
  const auto before = fs::file_size(store_path(folder_.path(), 0));
  StoreOptions more = options();
  more.scratch_bytes = {kMiB};
  {
    const FileSizeLimit limit(static_cast<int64_t>(before));
    const auto [details, message] = failure_of([&] { RecordStore::open(run_.geometry, run_.identity, more); });
    EXPECT_EQ(details.error_number, EFBIG);
    EXPECT_THAT(message, AllOf(HasSubstr("ulimit -f"), Not(HasSubstr("give a folder"))));
    EXPECT_EQ(fs::file_size(store_path(folder_.path(), 0)), before);
    write_step(*open(), run_, 5);
  }
  expect_step(*open(), run_, 5);
}

TEST_F(StoreAtItsLimits, a_store_longer_than_the_limit_of_files_is_refused_untouched_and_may_still_be_read) {
  write_step(*create(), run_, 4);
  const int64_t writes = faults_->writes;
  {
    const FileSizeLimit limit(static_cast<int64_t>(fs::file_size(store_path(folder_.path(), 0))) - 4096);
    const auto [details, message] = failure_of([&] { open(); });
    EXPECT_EQ(details.error_number, EFBIG);
    EXPECT_THAT(message, AllOf(HasSubstr("open for writing"), HasSubstr("ulimit -f"), Not(HasSubstr("give a folder"))));
    EXPECT_EQ(faults_->writes, writes);
    StoreOptions reading = options();
    reading.access = StoreOptions::Access::kRead;
    const auto store = RecordStore::open(run_.geometry, run_.identity, reading);
    expect_step(*store, run_, 4);
    EXPECT_EQ(failure_of([&] { write_step(*store, run_, 5); }).details.error_number, EFBIG);
  }
  expect_step(*open(), run_, 4);
}

TEST_F(StoreAtItsLimits, drives_are_weighed_by_files_no_longer_than_the_limit) {
  StoreOptions two = options();
  two.folder = folder_.path() / "a";
  two.more_folders = {folder_.path() / "b"};
  for (const int64_t bytes : {3 * kMiB, 6 * kMiB}) {
    const FileSizeLimit limit(bytes);
    write_step(*RecordStore::create(run_.geometry, run_.identity, two), run_, 1);
  }
  expect_step(*RecordStore::open(run_.geometry, run_.identity, two), run_, 1);
}

TEST_F(StoreAtItsLimits, a_creation_refused_by_its_queue_gives_back_what_it_has_reserved) {
  write_step(*create(), run_, 4);
  const int64_t blocks = blocks_of_file();
  StoreOptions larger = options();
  larger.scratch_bytes = {4 * kMiB};
  larger.make_queue = [](const IoQueueOptions&) -> std::unique_ptr<IoQueue> {
    throw IoError({.action = "made up", .path = "queue", .error_number = ENOMEM});
  };
  EXPECT_THROW(RecordStore::create(run_.geometry, run_.identity, larger), IoError);
  EXPECT_EQ(blocks_of_file(), blocks);
  expect_step(*open(), run_, 4);
}

TEST_F(StoreAtItsLimits, a_creation_that_a_further_drive_refuses_leaves_the_store_of_the_first_whole) {
  const MountedDrive drive(MountedDrive::Kind::kExt3, folder_.path() / "drive", 64 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  write_step(*create(), run_, 4);
  const int64_t blocks = blocks_of_file();
  StoreOptions two = options();
  two.more_folders = {drive.path()};
  two.drive_weights = {1, 1};
  EXPECT_EQ(failure_of([&] { RecordStore::create(run_.geometry, run_.identity, two); }).details.error_number,
            EOPNOTSUPP);
  EXPECT_EQ(blocks_of_file(), blocks);
  expect_step(*open(), run_, 4);
}

TEST_F(StoreAtItsLimits, options_that_no_store_can_have_are_a_programmers_error_and_cost_nothing) {
  write_step(*create(), run_, 4);
  const auto refused = [&](const std::function<void(StoreOptions&)>& change) {
    StoreOptions wrong = options();
    change(wrong);
    EXPECT_THROW(RecordStore::create(run_.geometry, run_.identity, wrong), std::logic_error);
    EXPECT_THROW(RecordStore::open(run_.geometry, run_.identity, wrong), std::logic_error);
  };
  refused([](StoreOptions& wrong) { wrong.scratch_bytes.assign(3, int64_t{1} << 62); });
  refused([](StoreOptions& wrong) { wrong.scratch_bytes = {-4096}; });
  refused([](StoreOptions& wrong) { wrong.caller_bytes = -1; });
  refused([](StoreOptions& wrong) { wrong.caller_bytes = kMaxCallerBytes + 1; });
  refused([](StoreOptions& wrong) { wrong.make_queue = nullptr; });
  refused([](StoreOptions& wrong) { wrong.make_queue = [](const IoQueueOptions&) { return nullptr; }; });
  expect_step(*open(), run_, 4);
}

TEST_F(StoreAtItsLimits, misuse_is_refused_before_anything_is_noted_down_of_it) {
  const auto store = create();
  const RecordId record{0, Group::kState};
  EXPECT_THROW(store->discard(record), std::logic_error) << "it was never written";
  write_records(*store, run_, 1);
  EXPECT_THROW(store->discard(record), std::logic_error) << "there is nothing to go back to";
  for (const int64_t step : {1, 2}) write_step(*store, run_, step);
  const AlignedBuffer buffer(run_.layout(record).bytes), more(run_.layout(record).bytes);
  // A commit under way covers what is written: giving that up, or writing over it, would break it.
  write_records(*store, run_, 3);
  store->commit(run_.state(3), 0);
  EXPECT_THROW(store->discard(record), std::logic_error);
  finish_one(*store);
  // A rehearsal goes to the slot that a write would take.
  EXPECT_THROW(store->rehearse_write(record, buffer.data() + 1, 0), std::logic_error);
  EXPECT_THROW(store->rehearse_write(record, nullptr, 0), std::logic_error);
  EXPECT_EQ(store->in_flight(), 0);
  store->rehearse_write(record, buffer.data(), 0);
  EXPECT_THROW(store->write(record, more.data(), 0), std::logic_error);
  finish_one(*store);
  const auto last = static_cast<uint32_t>(run_.geometry.chunks().size() - 1);
  for (const RecordId none :
       {RecordId{1000000, Group::kState}, RecordId{0, Group::kGradient}, RecordId{last, Group::kActivations}}) {
    EXPECT_THROW(store->read(none, buffer.data(), 0), std::logic_error);
    EXPECT_THROW(store->layout(none), std::logic_error);
    EXPECT_THROW(store->corruption(none, 0, 0, "none"), std::logic_error);
  }
  for (const int plane : {-1, store->layout(record).plane_count, 1000}) {
    EXPECT_THROW(store->corruption(record, plane, 0, "none"), std::logic_error);
  }
  // A commit that finds no room can be tried again.
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < kMaxTransfers; ++i) {
    store->read(record, buffers.emplace_back(run_.layout(record).bytes).data(), 0);
  }
  EXPECT_THROW(store->commit(run_.state(4), 0), std::logic_error);
  for (int i = 0; i < kMaxTransfers; ++i) finish_one(*store);
  write_step(*store, run_, 4);
  expect_step(*store, run_, 4);
}

TEST_F(StoreAtItsLimits, folders_that_share_a_drive_too_small_for_both_are_refused_and_the_store_there_stays) {
  const int64_t needed = RecordStore::file_bytes(run_.geometry, run_.precision);
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder_.path() / "small", needed + 64 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  StoreOptions one = options();
  one.folder = drive.path() / "a";
  write_step(*RecordStore::create(run_.geometry, run_.identity, one), run_, 4);
  // Half as much again; there is room for either of its two files, and not for both.
  const Geometry larger(std::vector<PartitionSpec>{{"all", {{"a", {30000}}}}}, 2000);
  StoreIdentity identity = run_.identity;
  identity.chunk_count = 15;
  StoreOptions two = one;
  two.more_folders = {drive.path() / "b"};
  two.drive_weights = {1, 1};
  const int64_t wanted = RecordStore::file_bytes(larger, run_.precision, 2);
  ASSERT_GT(wanted, needed + 64 * kKiB);
  ASSERT_LT(wanted / 2, needed);
  const auto [details, message] = failure_of([&] { RecordStore::create(larger, identity, two); });
  EXPECT_EQ(details.error_number, ENOSPC);
  EXPECT_EQ(details.bytes, wanted);
  const auto store = RecordStore::open(run_.geometry, run_.identity, one);
  ASSERT_NE(store, nullptr);
  expect_step(*store, run_, 4);
}

TEST_F(StoreAtItsLimits, a_store_that_cannot_grow_is_as_long_as_it_was_on_a_file_system_that_gives_a_part) {
  const MountedDrive drive(MountedDrive::Kind::kExt4, folder_.path() / "drive", 32 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  StoreOptions with = options();
  with.folder = drive.path();
  write_step(*RecordStore::create(run_.geometry, run_.identity, with), run_, 1);
  const auto before = fs::file_size(drive.path() / "sluice-0.swap");
  StoreOptions more = with;
  more.scratch_bytes = {64 * kMiB};
  const auto [details, message] = failure_of([&] { RecordStore::open(run_.geometry, run_.identity, more); });
  EXPECT_EQ(details.error_number, ENOSPC);
  EXPECT_THAT(message, AllOf(HasSubstr("make room"), Not(HasSubstr("give a folder"))));
  EXPECT_EQ(fs::file_size(drive.path() / "sluice-0.swap"), before);
  expect_step(*RecordStore::open(run_.geometry, run_.identity, with), run_, 1);
}

}  // namespace
}  // namespace sluice
