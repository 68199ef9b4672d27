#include "swap/drive_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string refusal(const std::vector<fs::path>& folders) {
  try {
    check_distinct(folders);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(DriveFolders, that_are_one_folder_are_refused_however_they_are_spelled) {
  const TempFolder folder;
  const fs::path there = folder.path() / "there", link = folder.path() / "link", new_one = folder.path() / "new" / "er";
  fs::create_directory(there);
  fs::create_directory_symlink(there, link);
  for (const fs::path& again :
       {there, there / "", there / ".", folder.path() / "." / "there", there / ".." / "there", link, link / ""}) {
    EXPECT_THAT(refusal({there, new_one, again}),
                testing::AllOf(HasSubstr(there.string() + " and " + again.string()), HasSubstr("one folder")));
  }
  for (const fs::path& again : {new_one, new_one / "", folder.path() / "new" / "." / "er"})
    EXPECT_THAT(refusal({new_one, again}), HasSubstr("one folder")) << again;
  EXPECT_EQ(refusal({there, new_one, folder.path() / "new", folder.path()}), "");
}

TEST(DriveFolders, that_hold_one_file_by_a_link_are_refused) {
  const TempFolder folder;
  const fs::path file = folder.path() / "file", soft = folder.path() / "soft", hard = folder.path() / "hard";
  const fs::path own = folder.path() / "own", missing = folder.path() / "missing";
  for (const fs::path& each : {file, own}) std::ofstream(each) << "a store";
  fs::create_symlink("file", soft);
  fs::create_hard_link(file, hard);
  for (const fs::path& again : {soft, hard}) {
    EXPECT_THAT(message_of<ConfigError>([&] {
                  check_distinct_files(std::vector{file, missing, own, again});
                }),
                HasSubstr(file.string() + " and " + again.string() + " are one file by a link"));
  }
  EXPECT_NO_THROW(check_distinct_files(std::vector{file, missing, own}));
}

TEST(DriveFolders, that_are_one_folder_mounted_twice_are_refused) {
  const TempFolder folder;
  const fs::path there = folder.path() / "there", again = folder.path() / "again";
  for (const fs::path& each : {there, again}) fs::create_directory(each);
  EXPECT_EQ(refusal({there, again}), "");
  if (mount(there.c_str(), again.c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no folder can be mounted in another place here: " << std::strerror(errno);
  const std::string said = refusal({there, again});
  ASSERT_EQ(umount2(again.c_str(), MNT_DETACH), 0);
  EXPECT_THAT(said, HasSubstr("one folder"));
}

TEST(DriveFolders, relative_and_absolute_are_compared) {
  EXPECT_THAT(refusal({"not-there", fs::current_path() / "not-there"}), HasSubstr("one folder"));
  EXPECT_THAT(refusal({"not-there", "./not-there/"}), HasSubstr("one folder"));
}

TEST(DriveFolders, in_memory_are_warned_of_each_by_its_name) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "drive", kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::vector<fs::path> folders = {drive.path() / "new", "/proc"};
  std::vector<std::string> lines;
  warn_of_no_drives(folders, [&lines](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::kWarning);
    lines.emplace_back(line);
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], testing::AllOf(HasSubstr((drive.path() / "new").string()), HasSubstr("tmpfs")));
}

TEST(FreeDriveBytes, count_a_file_system_once_and_look_above_what_is_not_there) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "drive", kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::vector<fs::path> folders = {drive.path(), drive.path() / "not" / "there"};
  EXPECT_EQ(free_drive_bytes(folders), kMiB);
  const std::vector<fs::path> outside = {folder.path()};
  EXPECT_GT(free_drive_bytes(outside), 0);
}

TEST(FreeDriveBytes, are_no_bound_where_a_file_system_does_not_tell) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kRam, folder.path() / "ram", 0);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  EXPECT_EQ(free_drive_bytes({{drive.path()}}), INT64_MAX);
}

}  // namespace
}  // namespace sluice
