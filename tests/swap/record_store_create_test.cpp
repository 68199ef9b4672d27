// What a creation that is refused, or that fails half-way, leaves behind: the store that was there, or nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "swap/record_store.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Over one drive and over two.
class StoreCreation : public testing::TestWithParam<int> {
 protected:
  StoreOptions options(const std::string& name = "store") const {
    const bool two = GetParam() == 2;
    return {.folder = folder_.path() / name / "a",
            .more_folders = two ? std::vector{folder_.path() / name / "b"} : std::vector<fs::path>{},
            .drive_weights = two ? std::vector<uint32_t>{1, 1} : std::vector<uint32_t>{1},
            .queue = {.depth = 8},
            .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> create(const StoreOptions& with) const {
    return RecordStore::create(run_.geometry, run_.identity, with);
  }
  void make_step(int64_t step) const { write_step(*create(options()), run_, step); }
  void expect_whole(int64_t step) const {
    const auto store = RecordStore::open(run_.geometry, run_.identity, options());
    ASSERT_NE(store, nullptr);
    expect_step(*store, run_, step);
  }
  static void expect_no_files(const StoreOptions& with) {
    for (const fs::path& folder : with.folders()) {
      EXPECT_TRUE(!fs::exists(folder) || fs::is_empty(folder)) << folder;
      EXPECT_EQ(find_store(folder), StoreExists::kNo);
    }
  }

  TempFolder folder_;
  TestRun run_;
};

TEST_P(StoreCreation, that_there_is_no_room_for_leaves_no_folder_though_drives_were_measured) {
  StoreOptions with = options();
  with.drive_weights.clear();
  with.scratch_bytes = {int64_t{1} << 50};
  EXPECT_EQ(failure_of([&] { create(with); }).details.error_number, ENOSPC);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_P(StoreCreation, that_may_replace_nothing_is_refused_where_a_store_has_come_meanwhile) {
  make_step(3);
  StoreOptions with = options();
  with.existing = StoreOptions::Existing::kRefused;
  EXPECT_THAT(message_of<ConfigError>([&] { create(with); }), testing::HasSubstr("begun there in this moment"));
  expect_whole(3);
  with.folder = folder_.path() / "new" / "a";
  with.more_folders.clear();
  with.drive_weights = {1};
  EXPECT_NE(create(with), nullptr);
}

TEST_P(StoreCreation, whose_queue_cannot_be_had_leaves_the_store_that_is_there_and_a_new_folder_empty) {
  make_step(3);
  for (const char* name : {"store", "new"}) {
    StoreOptions with = options(name);
    with.make_queue = [](const IoQueueOptions&) -> std::unique_ptr<IoQueue> {
      throw IoError({.action = "set-up", .path = "io_uring", .error_number = EPERM});
    };
    EXPECT_EQ(failure_of([&] { create(with); }).details.error_number, EPERM);
  }
  expect_whole(3);
  expect_no_files(options("new"));
}

TEST_P(StoreCreation, makes_its_queue_once_when_the_files_are_there) {
  int made = 0;
  StoreOptions with = options();
  with.make_queue = [&](const IoQueueOptions& queue) {
    ++made;
    for (const fs::path& folder : with.folders()) EXPECT_TRUE(fs::exists(folder / "sluice-0.swap"));
    return make_io_queue(queue);
  };
  create(with);
  EXPECT_EQ(made, 1);
}

TEST_P(StoreCreation, with_what_does_not_fit_together_leaves_the_store_that_is_there_and_a_new_folder_empty) {
  make_step(3);
  for (const char* name : {"store", "new"}) {
    StoreOptions crooked = options(name);
    crooked.block_bytes = 5000;
    EXPECT_THROW(create(crooked), std::logic_error);
    StoreIdentity other = run_.identity;
    ++other.chunk_count;
    EXPECT_THROW(RecordStore::create(run_.geometry, other, options(name)), std::logic_error);
    for (const int rank : {-1, 1}) {
      other = run_.identity;
      other.rank = rank;
      EXPECT_THROW(RecordStore::create(run_.geometry, other, options(name)), std::logic_error);
    }
  }
  StoreOptions nowhere = options("new");
  nowhere.folder.clear();
  EXPECT_THROW(create(nowhere), std::logic_error);
  expect_whole(3);
  expect_no_files(options("new"));
}

TEST_P(StoreCreation, leaves_no_file_where_nothing_is_committed_to_it_or_its_owner_gives_it_up) {
  write_records(*create(options()), run_, 0);
  expect_no_files(options());
  {
    const auto store = create(options());
    write_step(*store, run_, 0);
    store->leave_no_files();
  }
  expect_no_files(options());
  {
    const auto store = create(options());
    for (const int64_t step : {0, 1}) write_step(*store, run_, step);
    EXPECT_THROW(store->leave_no_files(), std::logic_error) << "a step is in it";
  }
  expect_whole(1);
  const auto opened = RecordStore::open(run_.geometry, run_.identity, options());
  EXPECT_THROW(opened->leave_no_files(), std::logic_error) << "it was there before";
}

TEST_P(StoreCreation, that_fails_while_headers_are_written_leaves_no_file) {
  const int64_t writes = 2 * GetParam();
  for (int64_t failing = 0; failing < writes; ++failing) {
    if (failing % 2 == 0) make_step(3);  // it is lost by then, and so is what would have taken its place
    StoreOptions with = options();
    auto faults = std::make_shared<Faults>();
    faults->list = {{.op = IoOp::kWrite, .nth = failing, .error_number = EIO}};
    with.make_queue = faulty_queue_factory(faults);
    EXPECT_EQ(failure_of([&] { create(with); }).details.error_number, EIO);
    EXPECT_EQ(faults->writes, failing + 1);
    expect_no_files(with);
  }
  make_step(4);
  expect_whole(4);
}

INSTANTIATE_TEST_SUITE_P(drives, StoreCreation, testing::Values(1, 2), testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice
