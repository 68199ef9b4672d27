// Folders that are made, and small files that are whole or not there.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

#include "core/errors.h"
#include "core/folders.h"
#include "core/pending_file.h"
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

TEST(Folders, are_made_with_those_above_and_say_whether_they_were_there) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a" / "b";
  EXPECT_EQ(make_folder(path, ""), FolderWas::kMade);
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(make_folder(path, ""), FolderWas::kThere);
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
