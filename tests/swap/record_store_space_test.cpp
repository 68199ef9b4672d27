// Space on the drive, the page cache, and what the store takes of the host.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "core/bytes.h"
#include "swap/record_checksums.h"
#include "swap/record_store.h"
#include "swap/store_format.h"
#include "tests/fakes/cached_pages.h"
#include "tests/fakes/counting_new.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StoreSpace : public OnEachBackend {
 protected:
  StoreOptions options(const std::filesystem::path& folder) {
    return {.folder = folder, .queue = {.backend = GetParam(), .depth = 16}, .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> create(const std::filesystem::path& folder) {
    return RecordStore::create(run_.geometry, run_.identity, options(folder));
  }

  TempFolder folder_;
  TestRun run_;
};

TEST_P(StoreSpace, a_drive_that_is_too_small_is_refused_before_anything_is_written) {
  const auto at = folder_.path() / "small";
  const MountedDrive drive(MountedDrive::Kind::kMemory, at, 256 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const int64_t needed = RecordStore::file_bytes(run_.geometry, run_.precision);
  ASSERT_GT(needed, 256 * kKiB);
  try {
    create(at);
    FAIL() << "not refused";
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().error_number, ENOSPC);
    EXPECT_EQ(error.details().bytes, needed);
    EXPECT_EQ(error.details().path, (at / "sluice-0.swap").string());
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(needed) + " bytes"), HasSubstr("262144 bytes"),
                                    HasSubstr("a larger drive")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(at)) << "a partial file is left behind";
}

TEST_P(StoreSpace, a_refusal_for_space_leaves_the_store_that_is_there_and_its_own_space_counts_as_free) {
  const auto at = folder_.path() / "small";
  const int64_t needed = RecordStore::file_bytes(run_.geometry, run_.precision);
  const MountedDrive drive(MountedDrive::Kind::kMemory, at, needed + 64 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  for (int again = 0; again < 2; ++again) write_step(*create(at), run_, 4);  // the second replaces the first
  const Geometry larger(std::vector<PartitionSpec>{{"all", {{"a", {40000}}}}}, 2000);
  StoreIdentity identity = run_.identity;
  identity.chunk_count = 20;
  EXPECT_THROW(RecordStore::create(larger, identity, options(at)), IoError);
  expect_step(*RecordStore::open(run_.geometry, run_.identity, options(at)), run_, 4);
}

TEST_P(StoreSpace, a_folder_that_cannot_be_made_is_an_error_that_names_it) {
  try {
    create("/proc/sluice/store");
    FAIL() << "made a folder in /proc";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/sluice/store"));
  }
}

TEST_P(StoreSpace, the_whole_file_is_allocated_from_the_start) {
  auto store = create(folder_.path() / "a" / "b");
  struct stat status {};
  ASSERT_EQ(stat(store->path().c_str(), &status), 0);
  EXPECT_EQ(status.st_size, RecordStore::file_bytes(run_.geometry, run_.precision));
  EXPECT_GE(status.st_blocks * 512, status.st_size);
}

TEST_P(StoreSpace, no_page_of_the_store_lies_in_the_page_cache) {
  struct statfs system {};
  ASSERT_EQ(statfs(folder_.path().c_str(), &system), 0);
  constexpr auto kTmpfs = 0x01021994;
  if (system.f_type == kTmpfs) GTEST_SKIP() << folder_.path() << " is on a tmpfs, which is the page cache itself";
  auto store = create(folder_.path());
  for (int64_t step = 0; step < 4; ++step) write_step(*store, run_, step);
  expect_step(*store, run_, 3);
  store.reset();
  store = RecordStore::open(run_.geometry, run_.identity, options(folder_.path()));
  ASSERT_TRUE(RecordStore::identify(folder_.path()).has_value());
  expect_step(*store, run_, 3);
  EXPECT_EQ(cached_pages(store->path()), 0);
  // And the count can tell: a buffered read of one byte brings pages in.
  const int file = open(store->path().c_str(), O_RDONLY);
  char byte = 0;
  EXPECT_EQ(pread(file, &byte, 1, 0), 1);
  close(file);
  EXPECT_GT(cached_pages(store->path()), 0);
}

// All records at once, several times over: more transfers and blocks than the queue is deep.
void round_trip(RecordStore& store, const TestRun& run, std::vector<AlignedBuffer>& buffers, IoOp op) {
  uint64_t tag = 0;
  for (uint32_t chunk = 0; chunk < run.geometry.chunks().size(); ++chunk) {
    for (const Group group : {Group::kWeights, Group::kState}) {
      const AlignedBuffer& buffer = buffers[tag];
      if (op == IoOp::kRead) {
        store.read({chunk, group}, buffer.data(), tag++);
      } else {
        store.write({chunk, group}, buffer.data(), tag++);
      }
    }
  }
  std::array<StoreCompletion, 3> done;
  while (store.in_flight() > 0) {
    const size_t count = store.poll(done, Wait::kUntilOne);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(done[i].error, nullptr);
  }
}

TEST_P(StoreSpace, takes_no_heap_memory_while_it_works) {
  auto store = create(folder_.path());
  std::vector<AlignedBuffer> buffers;
  for (RecordId record : run_.records()) {
    buffers.emplace_back(run_.layout(record).bytes);
    sum_record(*store, record, buffers.back().data());
  }
  StepState state = run_.state(3);
  state.caller.resize(20000);
  int64_t before = 0;
  for (int step = 0; step < 20; ++step) {
    if (step == 3) before = heap_allocations();  // both copies of the caller's bytes have their size by now
    round_trip(*store, run_, buffers, IoOp::kWrite);
    state.step = step;
    commit_now(*store, state);
    round_trip(*store, run_, buffers, IoOp::kRead);
  }
  EXPECT_EQ(heap_allocations(), before);
}

TEST_P(StoreSpace, its_tables_are_predicted_and_hold_what_it_takes_of_the_host) {
  for (const int64_t elements : {2000, 500000, 20000000}) {
    const Geometry geometry(std::vector<PartitionSpec>{{"all", {{"a", {elements}}}}}, 2000);
    StoreIdentity identity = run_.identity;
    identity.chunk_count = static_cast<int64_t>(geometry.chunks().size());
    const auto folder = folder_.path() / std::to_string(elements);
    const int64_t before = heap_live_bytes();
    auto store = RecordStore::create(geometry, identity, options(folder));
    const int64_t taken = heap_live_bytes() - before;
    const int64_t predicted = RecordStore::predicted_table_bytes({.chunk_count = identity.chunk_count, .depth = 16});
    EXPECT_LE(store->table_bytes(), predicted);
    EXPECT_GE(store->table_bytes(), predicted - 4 * kKiB);
    EXPECT_LE(taken, store->table_bytes()) << identity.chunk_count << " chunks";
    EXPECT_GE(taken, store->table_bytes() - 24 * kKiB) << identity.chunk_count << " chunks";
    store.reset();
    std::filesystem::remove_all(folder);
  }
}

TEST_P(StoreSpace, its_tables_count_the_callers_bytes) {
  auto store = create(folder_.path());
  write_step(*store, run_, 0);
  const int64_t before = store->table_bytes();
  StepState state = run_.state(1);
  state.caller.assign(static_cast<size_t>(kMiB), std::byte{7});
  commit_now(*store, state);
  EXPECT_GE(store->table_bytes(), before + 2 * kMiB);
  EXPECT_LE(store->table_bytes(), RecordStore::predicted_table_bytes(
                                      {.chunk_count = run_.identity.chunk_count, .depth = 16, .caller_bytes = kMiB}));
  store.reset();
  store = RecordStore::open(run_.geometry, run_.identity, options(folder_.path()));
  EXPECT_EQ(store->committed().caller, state.caller);
  state.caller.push_back(std::byte{1});
  EXPECT_THROW(commit_now(*store, state), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(backends, StoreSpace, testing::Values(IoBackend::kUring, IoBackend::kThreads),
                         name_of_backend);

}  // namespace
}  // namespace sluice
