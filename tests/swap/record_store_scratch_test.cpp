// Scratch extents: what a run keeps behind the records, and what no commit and no later run knows of.
#include <gmock/gmock.h>
#include <sys/mount.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/bytes.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

// Every byte says whose it is.
void fill(std::span<std::byte> bytes, int extent, int version) {
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(i * 7 + i / 4096 + size_t(extent) * 31 + version * 101);
}

// Drives of the store.
class Scratch : public testing::TestWithParam<int> {
 protected:
  StoreOptions options(std::vector<int64_t> scratch_bytes) {
    StoreOptions options{.folder = folder_.path() / "0", .queue = {.depth = 16}, .block_bytes = 8192};
    for (int drive = 1; drive < GetParam(); ++drive)
      options.more_folders.push_back(folder_.path() / std::to_string(drive));
    options.drive_weights.assign(static_cast<size_t>(GetParam()), 3);
    options.drive_weights[0] = 5;
    options.scratch_bytes = std::move(scratch_bytes);
    return options;
  }
  std::unique_ptr<RecordStore> create(std::vector<int64_t> scratch_bytes) {
    return RecordStore::create(run_.geometry, run_.identity, options(std::move(scratch_bytes)));
  }
  std::unique_ptr<RecordStore> open(std::vector<int64_t> scratch_bytes) {
    return RecordStore::open(run_.geometry, run_.identity, options(std::move(scratch_bytes)));
  }
  void finish(RecordStore& store) {
    std::array<StoreCompletion, 8> done;
    while (store.in_flight() > 0) {
      const size_t count = store.poll(done, Wait::kUntilOne);
      for (const StoreCompletion& each : std::span(done).first(count)) {
        if (each.error) std::rethrow_exception(each.error);
      }
    }
  }
  void write_all(RecordStore& store, int version) {
    for (int e = 0; e < static_cast<int>(kBytes.size()); ++e) {
      fill(buffers_[static_cast<size_t>(e)].span(), e, version);
      store.write_scratch(e, buffers_[static_cast<size_t>(e)].data(), 1);
    }
  }
  void expect_all(RecordStore& store, int version) {
    for (int e = 0; e < static_cast<int>(kBytes.size()); ++e) {
      const AlignedBuffer found(kBytes[static_cast<size_t>(e)]), expected(kBytes[static_cast<size_t>(e)]);
      store.read_scratch(e, found.data(), 1);
      finish(store);
      fill(expected.span(), e, version);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), static_cast<size_t>(found.bytes())), 0) << "extent " << e;
    }
  }
  int64_t files_bytes() const {
    int64_t sum = 0;
    for (int drive = 0; drive < GetParam(); ++drive)
      sum += static_cast<int64_t>(fs::file_size(store_path(folder_.path() / std::to_string(drive), 0)));
    return sum;
  }

  static inline const std::vector<int64_t> kBytes = {4096, 12288, 40960, 4096, 1 << 20};
  TempFolder folder_;
  TestRun run_;
  std::vector<AlignedBuffer> buffers_ = [] {
    std::vector<AlignedBuffer> buffers;
    for (const int64_t bytes : kBytes) buffers.emplace_back(bytes);
    return buffers;
  }();
};
INSTANTIATE_TEST_SUITE_P(Drives, Scratch, testing::Values(1, 2, 3), testing::PrintToStringParamName());

TEST_P(Scratch, that_is_not_there_is_a_programmers_error) {
  for (const std::vector<int64_t>& extents : {std::vector<int64_t>{}, {4096}}) {
    const auto store = create(extents);
    for (const int extent : {-1, 1, 1000}) {
      EXPECT_THROW(store->scratch_checksum(extent), std::logic_error);
      EXPECT_THROW(store->scratch_corruption(extent, 1, "none"), std::logic_error);
    }
  }
}

TEST_P(Scratch, extents_hold_what_was_written_last_and_leave_records_alone) {
  const auto store = create(kBytes);
  write_step(*store, run_, 1);
  for (int version = 0; version < 3; ++version) {
    write_all(*store, version);
    finish(*store);
    expect_all(*store, version);
    write_step(*store, run_, 2 + version);
    expect_all(*store, version);
    expect_step(*store, run_, 2 + version);
  }
}

TEST_P(Scratch, transfers_wait_for_no_commit) {
  const auto store = create(kBytes);
  write_records(*store, run_, 1);
  store->commit(run_.state(1), 7);
  write_all(*store, 1);  // a record's write would be refused here
  finish(*store);
  expect_all(*store, 1);
  expect_step(*store, run_, 1);
}

TEST_P(Scratch, is_each_runs_own_and_files_are_as_long_as_the_run_needs) {
  const auto needed = [&](const std::vector<int64_t>& scratch) {
    return RecordStore::file_bytes(run_.geometry, run_.precision, GetParam(), scratch);
  };
  write_step(*create(kBytes), run_, 1);
  EXPECT_EQ(files_bytes(), needed(kBytes));
  EXPECT_EQ(needed(kBytes), needed({}) + std::accumulate(kBytes.begin(), kBytes.end(), int64_t{0}));
  const std::vector<std::vector<int64_t>> later = {{}, {8192}, kBytes, {4096, 4096}};
  int64_t step = 1;
  for (const std::vector<int64_t>& scratch : later) {
    const auto store = open(scratch);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(files_bytes(), needed(scratch));
    expect_step(*store, run_, step);
    write_step(*store, run_, ++step);  // a file that was made shorter here was not cut short by somebody
  }
  const auto store = open(kBytes);
  expect_step(*store, run_, step);
  write_all(*store, 5);
  finish(*store);
  expect_all(*store, 5);
  write_step(*store, run_, step + 1);
}

TEST_P(Scratch, has_its_room_in_a_store_that_is_opened_to_be_read_before_a_byte_of_it_is_written) {
  write_step(*create({}), run_, 1);
  StoreOptions reading = options(kBytes);
  reading.access = StoreOptions::Access::kRead;
  const auto store = RecordStore::open(run_.geometry, run_.identity, reading);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(files_bytes(), RecordStore::file_bytes(run_.geometry, run_.precision, GetParam(), kBytes));
}

TEST_P(Scratch, is_not_written_beside_another_transfer_of_the_same_extent) {
  const auto store = create(kBytes);
  const AlignedBuffer more(kBytes[2]), again(kBytes[2]);
  store->write_scratch(2, buffers_[2].data(), 1);
  EXPECT_THROW(store->write_scratch(2, more.data(), 2), std::logic_error);
  EXPECT_THROW(store->read_scratch(2, more.data(), 2), std::logic_error);
  finish(*store);
  store->read_scratch(2, more.data(), 3);
  EXPECT_THROW(store->write_scratch(2, buffers_[2].data(), 4), std::logic_error);
  store->read_scratch(2, again.data(), 5);  // reads are for as many as there are
  EXPECT_EQ(store->in_flight(), 2);
  finish(*store);
}

TEST_P(Scratch, a_write_that_fails_is_an_error_and_nothing_is_committed_after_it) {
  auto faults = std::make_shared<Faults>();
  StoreOptions with = options(kBytes);
  with.make_queue = faulty_queue_factory(faults);
  const auto store = RecordStore::create(run_.geometry, run_.identity, with);
  write_step(*store, run_, 1);
  faults->list = {{.op = IoOp::kWrite, .nth = faults->writes, .error_number = EIO}};
  store->write_scratch(2, buffers_[2].data(), 1);
  try {
    finish(*store);
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().error_number, EIO);
    EXPECT_THAT(error.what(), HasSubstr("sluice-0.swap"));
  }
  EXPECT_THROW(commit_now(*store, run_.state(2)), IoError);
  EXPECT_EQ(store->committed().step, 1);
  const int64_t writes = faults->writes, bytes = store->written_bytes();
  store->write_scratch(0, buffers_[0].data(), 2);
  EXPECT_EQ(failure_of([&] { finish(*store); }).details.error_number, EIO);
  EXPECT_EQ(faults->writes, writes) << "nothing more is written";
  EXPECT_EQ(store->written_bytes(), bytes);
}

TEST_P(Scratch, bytes_that_are_others_are_named_by_what_was_kept_there) {
  const auto store = create(kBytes);
  store->set_scratch_checksum(3, 0x1234);
  EXPECT_EQ(store->scratch_checksum(3), 0x1234u);
  EXPECT_THAT(store->scratch_corruption(3, 0x4321, "block h.1, chunk 8, gradient").what(),
              AllOf(HasSubstr("block h.1, chunk 8, gradient"), HasSubstr("scratch extent 3"), HasSubstr("00001234"),
                    HasSubstr("00004321"), HasSubstr("sluice-0.swap")));
}

TEST_P(Scratch, without_space_for_it_an_opening_is_refused_and_the_store_stays_as_it_was) {
  // The last drive is the small one: those before have grown already when it refuses.
  const std::vector<int64_t> wanted = {4096, 8 << 20};
  const int last = GetParam() - 1;
  const std::vector<uint32_t> weights = options({}).drive_weights;
  const int64_t records = StoreLayout(run_.geometry, run_.precision, weights).file_bytes(last);
  const int64_t more = StoreLayout(run_.geometry, run_.precision, weights, wanted).file_bytes(last) - records;
  const fs::path at = folder_.path() / std::to_string(last);
  fs::create_directory(at);
  const std::string size = "size=" + std::to_string(records + 64 * kKiB);
  if (mount("sluice-test", at.c_str(), "tmpfs", 0, size.c_str()) != 0)
    GTEST_SKIP() << "no tmpfs can be mounted here: " << std::strerror(errno);
  write_step(*create({}), run_, 1);
  const int64_t before = files_bytes();
  try {
    open(wanted);
    ADD_FAILURE() << "opened";
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().error_number, ENOSPC);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(more) + " bytes"), HasSubstr(at.string())));
  }
  EXPECT_EQ(files_bytes(), before);
  expect_step(*open({4096}), run_, 1);
  umount2(at.c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace sluice
