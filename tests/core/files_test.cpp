// Folders that are made, and small files that are whole or not there.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "core/errors.h"
#include "core/folders.h"
#include "core/pending_file.h"
#include "tests/fakes/file_size_limit.h"
#include "tests/fakes/forbidden_call.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

TEST(PendingFile, takes_the_place_of_what_was_there_when_it_is_published_and_not_before) {
  const TempFolder folder;
  const fs::path path = folder.path() / "file";
  for (const std::string content : {"first", "second, which is longer", "3"}) {
    const std::string before = fs::exists(path) ? read_whole(path) : "";
    {
      PendingFile file(path);
      file.append(content);
      EXPECT_EQ(fs::exists(path) ? read_whole(path) : "", before);
    }
    EXPECT_EQ(fs::exists(path) ? read_whole(path) : "", before) << "not published";
    PendingFile file(path);
    file.append("____" + content);
    file.write_at(0, "4321");
    EXPECT_EQ(read_whole(file.temporary()), "4321" + content);
    file.publish();
    EXPECT_EQ(read_whole(path), "4321" + content);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(PendingFile, may_be_read_by_those_whom_the_umask_lets) {
  const TempFolder folder;
  const mode_t before = umask(0);
  for (const auto& [mask, mode] : {std::pair<mode_t, mode_t>{077, 0600}, {022, 0644}, {0, 0666}}) {
    umask(mask);
    const fs::path path = folder.path() / std::to_string(mask);
    PendingFile file(path);
    file.append("text");
    file.publish();
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
  umask(before);
}

std::vector<fs::path> names_in(const TempFolder& folder) {
  return {fs::directory_iterator(folder.path()), fs::directory_iterator()};
}

// Of the IoError that it throws; of none where it throws none.
template <typename Act>
IoError::Details failure_of(const Act& act) {
  try {
    act();
  } catch (const IoError& error) {
    return error.details();
  }
  return {};
}

IoError::Details publish(const fs::path& path) {
  return failure_of([&] {
    PendingFile file(path);
    file.append("new");
    file.publish();
  });
}

// Where a system call fails.
IoError::Details publish_without(const fs::path& path, ForbiddenCall call) {
  IoError::Details failure;
  std::thread([&] {
    forbid(call);
    failure = publish(path);
  }).join();
  return failure;
}

TEST(PendingFile, is_synced_before_it_takes_the_place_of_what_was_there) {
  const TempFolder folder;
  const fs::path path = folder.write("file", "old");
  const IoError::Details failure = publish_without(path, {.number = SYS_fdatasync, .error_number = EIO});
  EXPECT_EQ(failure.action, "fdatasync");
  EXPECT_EQ(failure.error_number, EIO);
  EXPECT_EQ(read_whole(path), "old");
  EXPECT_THAT(names_in(folder), testing::ElementsAre(path));
}

TEST(PendingFile, that_gets_no_name_leaves_what_was_there) {
  const TempFolder folder;
  if (const int nameless = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600); nameless < 0) {
    GTEST_SKIP() << "this file system knows only files with names";
  } else {
    close(nameless);
  }
  const fs::path path = folder.write("file", "old");
  EXPECT_EQ(publish_without(path, {.number = SYS_linkat, .error_number = EPERM}).action, "linkat");
  EXPECT_EQ(read_whole(path), "old");
  EXPECT_THAT(names_in(folder), testing::ElementsAre(path));
}

TEST(PendingFile, whose_folder_cannot_be_synced_is_there_and_says_so) {
  const TempFolder folder;
  const fs::path path = folder.write("file", "old");
  const IoError::Details failure = publish_without(path, {.number = SYS_fsync, .error_number = EIO});
  EXPECT_EQ(failure.action, "fsync");
  EXPECT_EQ(failure.path, folder.path());
  EXPECT_EQ(read_whole(path), "new");
}

TEST(PendingFile, is_published_where_the_file_system_cannot_sync_folders) {
  const TempFolder folder;
  const fs::path path = folder.write("file", "old");
  EXPECT_EQ(publish_without(path, {.number = SYS_fsync, .error_number = EINVAL}).action, "");
  EXPECT_EQ(read_whole(path), "new");
}

// It has got a name by then.
TEST(PendingFile, that_cannot_take_its_place_leaves_no_temporary_behind) {
  const TempFolder folder;
  const fs::path path = folder.path() / "folder";
  fs::create_directory(path);
  EXPECT_EQ(publish(path).action, "rename");
  EXPECT_THAT(names_in(folder), testing::ElementsAre(path));
}

TEST(PendingFile, goes_on_after_a_short_write_and_says_where_no_more_could_be_written) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const TempFolder folder;
  PendingFile file(folder.path() / "file");
  file.append("0123");
  IoError::Details failure;
  {
    const FileSizeLimit limit(10);
    failure = failure_of([&] { file.append("456789abc"); });
  }
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(failure.action, "write");
  EXPECT_EQ(failure.error_number, EFBIG);
  EXPECT_EQ(failure.offset, 10);
  EXPECT_EQ(failure.bytes, 3);
  EXPECT_EQ(read_whole(file.temporary()), "0123456789");
}

TEST(Folders, are_made_with_those_above_and_say_whether_they_were_there) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a" / "b";
  EXPECT_EQ(make_folder(path, ""), FolderWas::kMade);
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(make_folder(path, ""), FolderWas::kThere);
}

TEST(Folders, whose_names_the_drive_does_not_keep_are_an_error_and_where_they_cannot_be_read_none) {
  const TempFolder folder;
  std::thread([&] {
    forbid({.number = SYS_fsync, .error_number = EIO});
    EXPECT_EQ(failure_of([&] { make_folder(folder.path() / "lost", ""); }).error_number, EIO);
    forbid({.number = SYS_openat, .error_number = EACCES});
    EXPECT_EQ(make_folder(folder.path() / "unread", ""), FolderWas::kMade);
  }).join();
}

TEST(Folders, with_a_file_in_the_way_are_refused_with_the_callers_advice) {
  const TempFolder folder;
  std::ofstream(folder.path() / "file") << "text";
  try {
    make_folder(folder.path() / "file" / "below", "name another one");
    FAIL() << "not refused";
  } catch (const IoError& error) {
    EXPECT_EQ(error.details().error_number, ENOTDIR);
    EXPECT_EQ(error.details().advice, "name another one");
  }
}

}  // namespace
}  // namespace sluice
