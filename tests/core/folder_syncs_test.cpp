// What is synced of folders: in a program of its own, whose calls are counted.
#include <gtest/gtest.h>

#include "core/folders.h"
#include "tests/fakes/counting_calls.h"
#include "tests/fakes/temp_folder.h"

namespace sluice {
namespace {

TEST(FolderSyncs, make_the_names_of_new_folders_durable_each_in_the_folder_above) {
  if (calls_are_counted() == CallsCounted::kNo) GTEST_SKIP() << "a sanitizer stands in front of the calls";
  const TempFolder folder;
  for (const int64_t expected : {3, 0}) {  // the second time they are there
    const int64_t before = count_calls().folder_syncs;
    make_folder(folder.path() / "a" / "b" / "c", "");
    EXPECT_EQ(count_calls().folder_syncs - before, expected);
  }
}

}  // namespace
}  // namespace sluice
