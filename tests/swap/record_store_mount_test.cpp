// Drives that go away or turn read-only, on real file systems: ext4 in a file, where root may mount one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "core/bytes.h"
#include "swap/record_store.h"
#include "tests/fakes/io_backends.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class StoreOnAMount : public OnEachBackend {
 protected:
  void SetUp() override {
    OnEachBackend::SetUp();
    if (!drive_.reason().empty()) GTEST_SKIP() << drive_.reason();
  }
  std::filesystem::path file() const { return drive_.path() / "sluice-0.swap"; }
  StoreOptions options() {
    return {.folder = drive_.path(), .queue = {.backend = GetParam(), .depth = 8}, .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }

  TempFolder folder_;
  TestRun run_;
  MountedDrive drive_{MountedDrive::Kind::kExt4, folder_.path() / "drive", 24 * kMiB};
};

TEST_P(StoreOnAMount, a_drive_that_goes_away_is_an_error_and_the_last_committed_step_opens_when_it_is_back) {
  auto store = create();
  write_step(*store, run_, 0);
  write_step(*store, run_, 1);
  const int root = ::open(drive_.path().c_str(), O_RDONLY);
  const ShutDown shut_down = shut_down_ext4(root);
  close(root);
  if (shut_down != ShutDown::kDone) GTEST_SKIP() << "ext4 cannot be shut down here";
  const auto [details, message] = failure_of([&] { write_step(*store, run_, 2); });
  EXPECT_THAT(details.error_number, AnyOf(EIO, EROFS));
  EXPECT_EQ(details.path, file().string());
  EXPECT_THAT(message, HasSubstr("open the store again"));
  EXPECT_THROW(commit_now(*store, run_.state(2)), IoError);
  store.reset();
  drive_.mount_again();
  expect_step(*open(), run_, 1);
  write_step(*open(), run_, 2);
  expect_step(*open(), run_, 2);
}

TEST_P(StoreOnAMount, a_drive_that_is_read_only_is_refused_by_name_and_opens_when_it_is_writable_again) {
  write_step(*create(), run_, 3);
  drive_.make_read_only();
  for (const bool creates : {false, true}) {
    const auto [details, message] = failure_of([&] { creates ? create() : open(); });
    EXPECT_EQ(details.error_number, EROFS);
    EXPECT_EQ(details.path, file().string());
    EXPECT_THAT(message, HasSubstr("writable"));
  }
  drive_.make_writable();
  expect_step(*open(), run_, 3);
}

TEST_P(StoreOnAMount, a_full_drive_takes_nothing_from_a_store_that_is_there) {
  auto store = create();
  write_step(*store, run_, 0);
  const int file = ::open((drive_.path() / "full").c_str(), O_CREAT | O_WRONLY, 0644);
  while (fallocate(file, FALLOC_FL_KEEP_SIZE, lseek(file, 0, SEEK_CUR), kMiB) == 0) lseek(file, kMiB, SEEK_CUR);
  EXPECT_EQ(errno, ENOSPC);
  close(file);
  for (int64_t step = 1; step < 4; ++step) write_step(*store, run_, step);
  store.reset();
  expect_step(*open(), run_, 3);
}

TEST_P(StoreOnAMount, a_file_that_was_cut_short_is_never_committed_to) {
  for (const int64_t bytes : {int64_t{0}, int64_t{8192}, RecordStore::file_bytes(run_.geometry, run_.precision) / 2}) {
    auto store = create();
    write_step(*store, run_, 0);
    std::filesystem::resize_file(store->path(), static_cast<uintmax_t>(bytes));
    // The writes make it as long as it was, with holes where the other slots, the tables and the header lay.
    write_records(*store, run_, 1);
    EXPECT_THAT(failure_of([&] { commit_now(*store, run_.state(1)); }).message, HasSubstr("cut short"));
    EXPECT_EQ(store->committed().step, 0);
  }
}

// As after a restored backup: what was never written to takes no space.
TEST_P(StoreOnAMount, a_file_with_holes_that_was_cut_short_is_never_committed_to) {
  const int64_t whole = RecordStore::file_bytes(run_.geometry, run_.precision);
  // The last: cut to nothing and as long again, so that all of it is one hole.
  for (const int64_t bytes : {int64_t{0}, int64_t{4096}, whole / 2, whole}) {
    write_step(*create(), run_, 0);
    const std::string content = read_whole(file());
    {
      std::ofstream with_holes(file(), std::ios::binary | std::ios::trunc);
      for (size_t at = 0; at < content.size(); at += 4096) {
        const std::string block = content.substr(at, 4096);
        with_holes.seekp(static_cast<std::streamoff>(at));
        if (block.find_first_not_of('\0') != std::string::npos || at + 4096 >= content.size()) with_holes << block;
      }
    }
    auto store = open();
    ASSERT_NE(store, nullptr);
    write_step(*store, run_, 1);
    if (bytes == whole) std::filesystem::resize_file(file(), 0);
    std::filesystem::resize_file(file(), static_cast<uintmax_t>(bytes));
    if (bytes < 4096) write_records(*store, run_, 2);  // as long again as it was, but for the header
    EXPECT_THAT(failure_of([&] { commit_now(*store, run_.state(2)); }).message, HasSubstr("cut short")) << bytes;
    EXPECT_EQ(store->committed().step, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(backends, StoreOnAMount, testing::Values(IoBackend::kUring, IoBackend::kThreads),
                         name_of_backend);

}  // namespace
}  // namespace sluice
