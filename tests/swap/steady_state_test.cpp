// What a request costs besides the request: nothing is allocated, opened, closed or locked once a store is under way.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "core/arena.h"
#include "swap/record_store.h"
#include "swap/trim.h"
#include "tests/fakes/counting_calls.h"
#include "tests/fakes/counting_new.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

struct Counts {
  int64_t allocations = 0;
  CallCounts calls;
  bool operator==(const Counts&) const = default;
};
Counts counts() { return {heap_allocations(), count_calls()}; }
void PrintTo(const Counts& c, std::ostream* out) {
  *out << c.allocations << " allocations, " << c.calls.opens << " opens, " << c.calls.closes << " closes, "
       << c.calls.locks << " locks, " << c.calls.folder_syncs << " and " << c.calls.data_syncs << " syncs";
}

class SteadyState : public testing::TestWithParam<int> {
 protected:
  StoreOptions options() const {
    StoreOptions options{.folder = folder_.path() / "0", .queue = {.depth = 4}};
    for (int drive = 1; drive < GetParam(); ++drive)
      options.more_folders.push_back(folder_.path() / std::to_string(drive));
    options.drive_weights.assign(static_cast<size_t>(GetParam()), 1);
    return options;
  }
  // All records read and written again, several in flight, with their checksums; a commit; and a scratch extent.
  void round(RecordStore& store, int64_t step) {
    const std::array<uint32_t, 8> crcs{};
    for (const Group group : {Group::kWeights, Group::kState}) {
      const size_t planes = store.checksums({0, group}).size();
      for (uint32_t chunk = 0; step > 0 && chunk < chunks(); ++chunk) {
        store.read({chunk, group}, memory_.at(int64_t{chunk} * slot_bytes()), chunk);
      }
      drain(store);
      for (uint32_t chunk = 0; chunk < chunks(); ++chunk) {
        store.set_checksums({chunk, group}, std::span(crcs).first(planes));
        store.write({chunk, group}, memory_.at(int64_t{chunk} * slot_bytes()), chunk);
      }
      drain(store);
    }
    state_.step = step;
    store.commit(state_, 99);
    store.write_scratch(0, memory_.at(0), 100);
    drain(store);
    store.read_scratch(0, memory_.at(0), 100);
    drain(store);
  }
  void drain(RecordStore& store) {
    std::array<StoreCompletion, 8> done;
    while (store.in_flight() > 0) {
      const size_t count = store.poll(done, Wait::kUntilOne);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(done[i].error, nullptr);
    }
  }
  uint32_t chunks() const { return static_cast<uint32_t>(run_.geometry.chunks().size()); }
  int64_t slot_bytes() const { return run_.layout({0, Group::kState}).bytes; }

  TempFolder folder_;
  TestRun run_;
  Arena memory_{static_cast<int64_t>(run_.geometry.chunks().size()) * run_.layout({0, Group::kState}).bytes};
  StepState state_;
};

INSTANTIATE_TEST_SUITE_P(Drives, SteadyState, testing::Values(1, 2), testing::PrintToStringParamName());

// A file whose name is not durable is lost to a power cut with all that was committed to it.
TEST_P(SteadyState, a_creation_makes_the_names_of_its_files_and_folders_durable) {
  if (calls_are_counted() == CallsCounted::kNo) GTEST_SKIP() << "a sanitizer stands in front of fsync";
  for (const int each : {2, 1}) {  // a file's and its folder's; once more where the folders are there
    const int64_t before = count_calls().folder_syncs;
    RecordStore::create(run_.geometry, run_.identity, options());
    EXPECT_EQ(count_calls().folder_syncs - before, each * GetParam());
  }
}

// After a power cut no file that was removed may be back, and no mark be lost whose file is gone.
TEST_P(SteadyState, a_trim_makes_its_marks_durable_before_a_file_goes_and_then_that_its_name_is_gone) {
  if (calls_are_counted() == CallsCounted::kNo) GTEST_SKIP() << "a sanitizer stands in front of fsync";
  const StoreOptions with = options();
  write_step(*RecordStore::create(run_.geometry, run_.identity, with), run_, 0);
  const int marks = GetParam() - 1;
  CallCounts before = count_calls();
  std::thread([&] {
#ifdef SYS_unlink
    forbid({.number = SYS_unlink, .error_number = EIO});
#endif
    forbid({.number = SYS_unlinkat, .error_number = EIO});
    EXPECT_THROW(trim_stores(with.folders(), {}), IoError);
  }).join();
  EXPECT_EQ(count_calls().data_syncs - before.data_syncs, marks);
  EXPECT_EQ(count_calls().folder_syncs - before.folder_syncs, 0);
  before = count_calls();
  trim_stores(with.folders(), {});
  EXPECT_EQ(count_calls().data_syncs - before.data_syncs, marks);
  EXPECT_EQ(count_calls().folder_syncs - before.folder_syncs, GetParam());
}

TEST_P(SteadyState, moves_records_and_commits_without_allocating_opening_closing_or_locking) {
  skip_without_uring();
  if (IsSkipped()) return;
  StoreOptions with = options();
  with.queue.backend = IoBackend::kUring;
  with.block_bytes = 4096;
  with.scratch_bytes = {16384};
  with.queue.memory = {memory_.span()};
  auto store = RecordStore::create(run_.geometry, run_.identity, with);
  for (int64_t step = 0; step < 3; ++step) round(*store, step);
  const Counts before = counts();
  for (int64_t step = 3; step < 13; ++step) round(*store, step);
  const Counts after = counts();
  EXPECT_EQ(after, before);
  // The counters count.
  store.reset();
  EXPECT_GT(after.allocations, 0);
  if (calls_are_counted() == CallsCounted::kNo) GTEST_SKIP() << "a sanitizer stands before open, close and the locks";
  EXPECT_GT(count_calls().closes, after.calls.closes);
  EXPECT_GT(count_calls().opens, 0);
  std::mutex mutex;
  mutex.lock();
  mutex.unlock();
  std::shared_mutex shared;
  shared.lock_shared();
  shared.unlock_shared();
  EXPECT_GE(count_calls().locks, after.calls.locks + 2);
}

}  // namespace
}  // namespace sluice
