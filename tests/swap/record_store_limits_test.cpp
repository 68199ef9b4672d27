#include <sys/stat.h>

#include "core/bytes.h"
#include "swap/drive.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/swap/store_damage_fixture.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreAtItsLimits : public testing::Test {
 protected:
  StoreOptions options() {
    return {.folder = folder_.path(),
            .make_queue = faulty_queue_factory(faults_),
            .queue = {.depth = 8},
            .block_bytes = kMiB};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
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
  EXPECT_EQ(failure_of([&] { RecordStore::open(run_.geometry, run_.identity, more); }).details.error_number, ENOSPC);
  EXPECT_EQ(fs::file_size(drive.path() / "sluice-0.swap"), before);
  expect_step(*RecordStore::open(run_.geometry, run_.identity, with), run_, 1);
}

}  // namespace
}  // namespace sluice
