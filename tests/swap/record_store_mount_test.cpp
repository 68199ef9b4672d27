// Drives that go away or turn read-only, on real file systems: ext4 in a file, where root may mount one.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/bytes.h"
#include "core/errors.h"
#include "swap/record_store.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class StoreOnADrive : public testing::TestWithParam<IoBackend> {
 protected:
  void SetUp() override {
    const std::string image = (folder_.path() / "image").string();
    std::filesystem::create_directory(drive());
    const std::string make = fmt::format(
        "truncate -s 24M {0} && PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q {0} >{0}.log 2>&1 && mount -o loop {0} {1} "
        ">>{0}.log 2>&1",
        image, drive().string());
    if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no ext4 can be made in a file and mounted here (root may)";
    is_mounted_ = true;
  }
  void TearDown() override {
    if (is_mounted_) umount2(drive().c_str(), MNT_DETACH);
  }
  std::filesystem::path drive() const { return folder_.path() / "drive"; }
  StoreOptions options() {
    return {.folder = drive(), .queue = {.backend = GetParam(), .depth = 8}, .block_bytes = 8192};
  }
  std::unique_ptr<RecordStore> create() { return RecordStore::create(run_.geometry, run_.identity, options()); }
  std::unique_ptr<RecordStore> open() { return RecordStore::open(run_.geometry, run_.identity, options()); }
  void remount(unsigned long flags) {
    ASSERT_EQ(mount(nullptr, drive().c_str(), nullptr, MS_REMOUNT | flags, nullptr), 0) << std::strerror(errno);
  }
  template <typename Action>
  IoError::Details failure_of(Action action) {
    try {
      action();
    } catch (const IoError& error) {
      message_ = error.what();
      return error.details();
    }
    ADD_FAILURE() << "no IoError";
    return {};
  }

  TempFolder folder_;
  TestRun run_;
  std::string message_;
  bool is_mounted_ = false;
};

TEST_P(StoreOnADrive, a_drive_that_goes_away_is_an_error_and_the_last_committed_step_opens_when_it_is_back) {
  auto store = create();
  write_step(*store, run_, 0);
  write_step(*store, run_, 1);
  const int root = ::open(drive().c_str(), O_RDONLY);
  constexpr unsigned long kShutDown = _IOR('X', 125, uint32_t);  // EXT4_IOC_SHUTDOWN
  uint32_t without_flushing = 2;
  const int shut_down = ioctl(root, kShutDown, &without_flushing);
  close(root);
  if (shut_down != 0) GTEST_SKIP() << "ext4 cannot be shut down here: " << std::strerror(errno);
  const IoError::Details details = failure_of([&] { write_step(*store, run_, 2); });
  EXPECT_THAT(details.error_number, AnyOf(EIO, EROFS));
  EXPECT_EQ(details.path, (drive() / "sluice-0.swap").string());
  EXPECT_THAT(message_, HasSubstr("--resume"));
  EXPECT_THROW(commit_now(*store, run_.state(2)), IoError);
  store.reset();
  ASSERT_EQ(umount2(drive().c_str(), 0), 0) << std::strerror(errno);
  is_mounted_ = false;
  const std::string again = fmt::format("mount -o loop {} {}", (folder_.path() / "image").string(), drive().string());
  ASSERT_EQ(std::system(again.c_str()), 0);
  is_mounted_ = true;
  expect_step(*open(), run_, 1);
  write_step(*open(), run_, 2);
  expect_step(*open(), run_, 2);
}

TEST_P(StoreOnADrive, a_drive_that_is_read_only_is_refused_by_name_and_opens_when_it_is_writable_again) {
  write_step(*create(), run_, 3);
  remount(MS_RDONLY);
  for (const bool creates : {false, true}) {
    const IoError::Details details = failure_of([&] { creates ? create() : open(); });
    EXPECT_EQ(details.error_number, EROFS);
    EXPECT_EQ(details.path, (drive() / "sluice-0.swap").string());
    EXPECT_THAT(message_, HasSubstr("writable"));
  }
  remount(0);
  expect_step(*open(), run_, 3);
}

TEST_P(StoreOnADrive, a_full_drive_takes_nothing_from_a_store_that_is_there) {
  auto store = create();
  write_step(*store, run_, 0);
  const int file = ::open((drive() / "full").c_str(), O_CREAT | O_WRONLY, 0644);
  while (fallocate(file, FALLOC_FL_KEEP_SIZE, lseek(file, 0, SEEK_CUR), kMiB) == 0) lseek(file, kMiB, SEEK_CUR);
  EXPECT_EQ(errno, ENOSPC);
  close(file);
  for (int64_t step = 1; step < 4; ++step) write_step(*store, run_, step);
  store.reset();
  expect_step(*open(), run_, 3);
}

TEST_P(StoreOnADrive, a_file_that_was_cut_short_is_never_committed_to) {
  for (const int64_t bytes : {int64_t{0}, int64_t{8192}, RecordStore::file_bytes(run_.geometry, run_.precision) / 2}) {
    auto store = create();
    write_step(*store, run_, 0);
    std::filesystem::resize_file(store->path(), static_cast<uintmax_t>(bytes));
    // The writes make it as long as it was, with holes where the other slots, the tables and the header lay.
    write_records(*store, run_, 1);
    failure_of([&] { commit_now(*store, run_.state(1)); });
    EXPECT_THAT(message_, HasSubstr("cut short"));
    EXPECT_EQ(store->committed().step, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(backends, StoreOnADrive, testing::Values(IoBackend::kUring, IoBackend::kThreads),
                         [](const auto& backend) { return backend.param == IoBackend::kUring ? "uring" : "threads"; });

}  // namespace
}  // namespace sluice
