// Room for files that are not there yet, by the file systems that they would share.
#include "swap/drive_space.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>

#include "core/bytes.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

TEST(RoomsFor, files_of_one_file_system_are_one_and_their_bytes_add_up_and_nothing_is_made) {
  const TempFolder folder;
  const std::array files = {folder.path() / "a" / "x.swap", folder.path() / "b" / "c" / "x.swap"};
  const std::vector<FileSystemRoom> rooms = rooms_for(files, std::array{int64_t{5}, int64_t{7}});
  ASSERT_EQ(rooms.size(), 1u);
  EXPECT_EQ(rooms[0].needed_bytes, 12);
  EXPECT_GT(rooms[0].free_bytes, 0);
  EXPECT_EQ(rooms[0].folders(), (std::vector{folder.path() / "a", folder.path() / "b" / "c"}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RoomsFor, files_that_are_there_count_as_free_where_they_are) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kMemory, folder.path() / "drive", kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  std::ofstream(drive.path() / "old.swap") << std::string(static_cast<size_t>(kMiB / 2), 'x');
  std::ofstream(drive.path() / "other") << std::string(static_cast<size_t>(kMiB / 4), 'x');
  fs::create_symlink(drive.path() / "old.swap", folder.path() / "link.swap");
  const std::array files = {folder.path() / "here.swap", folder.path() / "link.swap", drive.path() / "new.swap"};
  const std::array bytes = {int64_t{1}, kMiB / 2, kMiB / 4};
  const std::vector<FileSystemRoom> rooms = rooms_for(files, bytes);
  ASSERT_EQ(rooms.size(), 2u);
  EXPECT_EQ(rooms[0].files, std::vector{files[0]});
  EXPECT_EQ(rooms[1].files, (std::vector{files[1], files[2]}));
  EXPECT_EQ(rooms[1].free_bytes, kMiB * 3 / 4);
  EXPECT_FALSE(rooms[1].is_too_small());
  EXPECT_TRUE(rooms_for(files, std::array{int64_t{1}, kMiB / 2, kMiB / 4 + 1})[1].is_too_small());
}

TEST(RoomsFor, a_file_system_that_does_not_tell_is_never_too_small) {
  const TempFolder folder;
  const MountedDrive drive(MountedDrive::Kind::kRam, folder.path() / "ram", 0);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  std::ofstream(drive.path() / "old.swap") << std::string(4096, 'x');
  const std::array files = {drive.path() / "old.swap"};
  EXPECT_FALSE(rooms_for(files, std::array{INT64_MAX})[0].is_too_small());
}

}  // namespace
}  // namespace sluice
