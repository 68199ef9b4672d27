// Files of drives that several processes reach for at once, and what a refused creation leaves behind.
#include "swap/drive.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kBytes = 16 * 4096;

// While it lives this is the folder that the process is in.
class InFolder {
 public:
  explicit InFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  InFolder(const InFolder&) = delete;
  ~InFolder() { fs::current_path(before_); }

 private:
  fs::path before_;
};

class DriveFile : public testing::Test {
 protected:
  fs::path path(const std::string& drive) const { return folder_.path() / drive / "sluice-0.swap"; }
  // As another process that has just made its file.
  int make_and_lock(const fs::path& file) const {
    fs::create_directories(file.parent_path());
    const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    EXPECT_EQ(flock(descriptor, LOCK_EX | LOCK_NB), 0);
    return descriptor;
  }
  static int64_t times_open(const fs::path& file) {
    std::error_code ignored;
    int64_t count = 0;
    for (const auto& each : fs::directory_iterator("/proc/self/fd"))
      count += fs::read_symlink(each.path(), ignored).string().starts_with(file.string()) ? 1 : 0;
    return count;
  }
  static bool has_ended_well(pid_t child) {
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
  }
  std::vector<Drive> create(const std::vector<fs::path>& files) const {
    const std::vector<int64_t> bytes(files.size(), kBytes);
    std::vector<Drive> drives = make_drives(files, bytes);
    allocate_drives(drives, bytes);
    for (Drive& drive : drives) drive.keep();
    return drives;
  }

  TempFolder folder_;
};

TEST_F(DriveFile, that_another_process_has_just_made_is_left_alone) {
  const int theirs = make_and_lock(path("b"));
  EXPECT_THROW(create({path("a"), path("b")}), ConfigError);
  EXPECT_TRUE(fs::exists(path("b")));
  EXPECT_FALSE(fs::exists(path("a"))) << "the one made here is left behind";
  close(theirs);
  EXPECT_EQ(create({path("a"), path("b")}).size(), 2u);
}

TEST_F(DriveFile, that_no_drive_has_room_for_is_refused_before_any_folder_is_made) {
  constexpr int64_t kBeyondAll = int64_t{1} << 60;
  const std::vector<fs::path> files = {path("a/new"), path("b/new")};
  const auto [details, message] = failure_of([&] { make_drives(files, std::vector{kBytes, kBeyondAll}); });
  EXPECT_EQ(details.error_number, ENOSPC);
  EXPECT_EQ(details.bytes, kBytes + kBeyondAll) << "both are on one file system";
  EXPECT_THAT(message, HasSubstr(files[0].parent_path().string() + ", " + files[1].parent_path().string()));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(DriveFile, that_one_of_several_drives_has_no_room_for_is_refused_by_that_drive_with_its_share) {
  constexpr int64_t kShare = 512 * 1024;
  const MountedDrive small(MountedDrive::Kind::kMemory, folder_.path() / "small", kShare / 2);
  if (!small.reason().empty()) GTEST_SKIP() << small.reason();
  const std::vector<fs::path> files = {path("large"), path("small/new")};
  const auto [details, message] = failure_of([&] { make_drives(files, std::vector{kShare, kShare}); });
  EXPECT_EQ(details.error_number, ENOSPC);
  EXPECT_EQ(details.path, files[1].string());
  EXPECT_EQ(details.bytes, kShare);
  EXPECT_THAT(message, AllOf(HasSubstr("262144 bytes (256.0 KiB) are free in " + files[1].parent_path().string()),
                             HasSubstr("leave out one that is full")));
  EXPECT_FALSE(fs::exists(folder_.path() / "large"));
  EXPECT_TRUE(fs::is_empty(small.path()));
  EXPECT_EQ(make_drives(files, std::vector{kShare, kShare / 4}).size(), 2u);
}

// Whoever waits for the lock of a file that its owner takes away makes a file of its own in place of a nameless one.
TEST_F(DriveFile, that_cannot_grow_says_why_though_it_cannot_be_cut_back_either) {
  std::vector<Drive> drives = create({path("a"), path("b")});
  std::thread([&] {
    forbid({.number = SYS_ftruncate, .error_number = EROFS});
    {
      const FileSizeLimit limit(2 * kBytes);
      const auto grow = [&] { grow_drives(drives, std::vector{2 * kBytes, 3 * kBytes}); };
      EXPECT_EQ(failure_of(grow).details.error_number, EFBIG);
    }
    forbid({.number = SYS_fallocate, .error_number = EIO});
    const auto grow = [&] { grow_drives(drives, std::vector{3 * kBytes, 3 * kBytes}); };
    EXPECT_EQ(failure_of(grow).details.error_number, EIO);
  }).join();
}

TEST_F(DriveFile, that_is_taken_away_while_its_lock_is_waited_for_is_made_anew) {
  const int theirs = make_and_lock(path("a"));
  int64_t bytes = 0;
  std::thread waits([&] { bytes = create({path("a")})[0].bytes(); });
  while (times_open(path("a")) < 2) std::this_thread::yield();
  fs::remove(path("a"));
  close(theirs);
  waits.join();
  EXPECT_EQ(bytes, kBytes);
  ASSERT_TRUE(fs::exists(path("a")));
  EXPECT_EQ(fs::file_size(path("a")), static_cast<uintmax_t>(kBytes));
}

TEST_F(DriveFile, that_is_taken_away_while_its_lock_is_waited_for_does_not_open) {
  const int theirs = make_and_lock(path("a"));
  int error_number = 0;
  std::thread waits([&] {
    try {
      Drive::open(path("a"));
    } catch (const IoError& error) {
      error_number = error.details().error_number;
    }
  });
  while (times_open(path("a")) < 2) std::this_thread::yield();
  fs::remove(path("a"));
  close(theirs);
  waits.join();
  EXPECT_EQ(error_number, ENOENT);
}

TEST_F(DriveFile, is_not_left_behind_where_there_is_no_direct_io) {
  const MountedDrive drive(MountedDrive::Kind::kRam, folder_.path() / "ram", 0);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const auto [details, message] = failure_of([&] { create({path("a"), path("ram")}); });
  EXPECT_EQ(details.error_number, EINVAL);
  EXPECT_THAT(message, testing::AllOf(HasSubstr(path("ram").string()), HasSubstr("no direct I/O")));
  EXPECT_TRUE(fs::is_empty(drive.path()));
  EXPECT_TRUE(fs::is_empty(folder_.path() / "a"));
}

TEST_F(DriveFile, is_not_left_behind_where_it_cannot_be_locked) {
  using Case = std::pair<int, const char*>;
  for (const auto& [error_number, words] : {Case{EIO, "dmesg"}, Case{ENOLCK, "no locks"}}) {
    std::thread([&] {
      forbid({.number = SYS_flock, .error_number = static_cast<uint32_t>(error_number)});
      const auto [details, message] = failure_of([&] { create({path("a")}); });
      EXPECT_EQ(details.error_number, error_number);
      EXPECT_THAT(message, testing::AllOf(HasSubstr(path("a").string()), HasSubstr(words)));
    }).join();
    EXPECT_FALSE(fs::exists(path("a")));
  }
}

TEST_F(DriveFile, given_by_a_relative_path_is_found_from_every_folder) {
  const InFolder here(folder_.path());
  const std::vector<Drive> kept = create({"kept/sluice-0.swap"});
  {
    const std::vector<Drive> half_made = make_drives(std::vector<fs::path>{"half/sluice-0.swap"}, std::vector{kBytes});
    const InFolder elsewhere("/");
    EXPECT_NO_THROW(kept[0].check_named());
    EXPECT_EQ(kept[0].path(), "kept/sluice-0.swap") << "messages name it as it was given";
    fs::rename(path("kept"), folder_.path() / "away");
    EXPECT_THAT(failure_of([&] { kept[0].check_named(); }).message, HasSubstr("moved away"));
    EXPECT_TRUE(fs::exists(path("half")));
  }
  EXPECT_FALSE(fs::exists(path("half")));
}

TEST_F(DriveFile, is_not_made_where_a_link_leads_to_nothing) {
  const fs::path target = folder_.path() / "target";
  fs::create_directory(path("b").parent_path());
  fs::create_symlink(target, path("b"));
  const auto [details, message] = failure_of([&] { create({path("a"), path("b")}); });
  EXPECT_EQ(details.error_number, ENOENT);
  EXPECT_THAT(message, testing::AllOf(HasSubstr(path("b").string()), HasSubstr("a link to nothing is there")));
  EXPECT_FALSE(fs::exists(target));
  EXPECT_TRUE(fs::is_symlink(path("b")));
  EXPECT_FALSE(fs::exists(path("a")));
}

TEST_F(DriveFile, behind_a_link_is_left_empty_by_a_creation_that_is_given_up_and_the_link_leads_to_it_still) {
  const fs::path target = folder_.path() / "target";
  fs::create_directory(path("a").parent_path());
  std::ofstream(target) << std::string(kBytes, 'a');
  fs::create_symlink(target, path("a"));
  {
    const std::vector<fs::path> paths{path("a")};
    const std::vector<int64_t> bytes{kBytes};
    std::vector<Drive> given_up = make_drives(paths, bytes);
    allocate_drives(given_up, bytes);
  }
  EXPECT_EQ(fs::read_symlink(path("a")), target);
  EXPECT_EQ(fs::file_size(path("a")), 0u);
  EXPECT_EQ(create({path("a")})[0].bytes(), kBytes);
}

TEST_F(DriveFile, that_is_given_up_leaves_what_somebody_has_put_in_its_place) {
  for (const bool is_replaced : {false, true}) {
    {
      const std::vector<fs::path> paths{path("a")};
      const std::vector<int64_t> bytes{kBytes};
      std::vector<Drive> given_up = make_drives(paths, bytes);
      allocate_drives(given_up, bytes);
      if (is_replaced) {
        fs::rename(path("a"), folder_.path() / "away");
        std::ofstream(path("a")) << "theirs";
      }
    }
    EXPECT_EQ(fs::exists(path("a")), is_replaced);
  }
  EXPECT_EQ(read_whole(path("a")), "theirs");
}

TEST_F(DriveFile, is_unlocked_by_its_owner_while_a_forked_child_lives) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  pid_t child = 0;
  {
    const std::vector<Drive> drives = create({path("a")});
    child = fork();
    if (child == 0) {
      close(ends[1]);
      char nothing = 0;
      _exit(read(ends[0], &nothing, 1) == 0 ? 0 : 1);  // until the parent says so
    }
  }
  EXPECT_NO_THROW(Drive::open(path("a")));
  close(ends[0]);
  close(ends[1]);
  EXPECT_TRUE(has_ended_well(child));
}

TEST_F(DriveFile, is_neither_unlocked_nor_taken_away_by_a_forked_child) {
  std::vector<Drive> half_made = make_drives(std::vector{path("a")}, std::vector{kBytes});
  const pid_t child = fork();
  if (child == 0) {
    half_made.clear();
    _exit(0);
  }
  ASSERT_TRUE(has_ended_well(child));
  EXPECT_TRUE(fs::exists(path("a")));
  EXPECT_THROW(Drive::open(path("a")), ConfigError);
}

TEST_F(DriveFile, that_the_machine_does_not_open_says_where_to_look) {
  create({path("a")});
  using Case = std::pair<int, const char*>;
  for (const auto& [error_number, words] :
       {Case{EIO, "dmesg"}, Case{EMFILE, "ulimit -n"}, Case{ENFILE, "fs.file-max"}, Case{ENOMEM, "out of memory"}}) {
    std::thread([&] {
      forbid({.number = SYS_openat, .error_number = static_cast<uint32_t>(error_number)});
      const auto [details, message] = failure_of([&] { Drive::open(path("a")); });
      EXPECT_EQ(details.error_number, error_number);
      EXPECT_THAT(message, testing::AllOf(HasSubstr(path("a").string()), HasSubstr(words)));
    }).join();
  }
}

TEST_F(DriveFile, is_a_regular_one) {
  const fs::path pipe = folder_.path() / "pipe", folder = folder_.path() / "folder";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(folder);
  for (const fs::path& each : {pipe, folder}) {
    const auto [details, message] = failure_of([&] { Drive::open(each); });
    EXPECT_NE(details.error_number, 0);
    EXPECT_THAT(message, testing::AllOf(HasSubstr(each.string()), HasSubstr("no regular file")));
  }
}

}  // namespace
}  // namespace sluice
