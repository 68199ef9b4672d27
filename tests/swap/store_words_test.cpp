// A program's own words in what the store tells people.
#include "swap/store_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/fakes/message_of.h"
#include "tests/swap/store_fixture.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::filesystem::path above(const std::filesystem::path& folder) { return folder.parent_path(); }

constexpr StoreWords kProgramsWords{.folders = " (--folder)",
                                    .earlier_step = " (--from goes on from it)",
                                    .step_before = " (verify)",
                                    .go_on = "press on",
                                    .start_over = "wipe it"};
constexpr StoreWords kWordsOfAFolderInside{.folders = " (--folder)", .go_on = "try again", .users_folder = above};

class StoreWordsTest : public StoreOnADrive {
 protected:
  StoreOptions options_with(const StoreWords& words) {
    StoreOptions with = options();
    with.words = &words;
    return with;
  }
  void fail_reads() { faults_->list.push_back({.op = IoOp::kRead, .times = INT64_MAX / 2, .error_number = EIO}); }
  std::string refusal_to_open() {
    return message_of<Error>([&] { RecordStore::open(run_.geometry, run_.identity, options_with(kProgramsWords)); });
  }
};

TEST_F(StoreWordsTest, stand_in_what_a_transfer_and_a_checksum_report) {
  auto store = RecordStore::create(run_.geometry, run_.identity, options_with(kProgramsWords));
  write_step(*store, run_, 0);
  fail_reads();
  const RecordId record = run_.records().front();
  EXPECT_THAT(message_of<Error>([&] { read_verified(*store, run_, record); }),
              AllOf(HasSubstr(file()), HasSubstr("press on")));
  EXPECT_THAT(store->corruption(record, 0, 1, "wte").what(),
              AllOf(HasSubstr(file()), HasSubstr("press on"), HasSubstr("whole (verify), or wipe it")));
}

TEST_F(StoreWordsTest, stand_in_what_refuses_a_store) {
  make_steps(1);
  StoreIdentity other = run_.identity;
  other.model += " of another run";
  EXPECT_THAT(message_of<Error>([&] { RecordStore::open(run_.geometry, other, options_with(kProgramsWords)); }),
              HasSubstr("another folder (--folder), or wipe it"));
  {
    const auto holder = open();
    EXPECT_THAT(refusal_to_open(), HasSubstr("needs another folder (--folder)"));
  }
  flip_in_both_copies(8);
  EXPECT_THAT(refusal_to_open(), HasSubstr("or wipe it"));
  std::ofstream(file(), std::ios::trunc) << std::string(9000, 'x');
  EXPECT_THAT(refusal_to_open(), HasSubstr("give another folder (--folder), or wipe it"));
  std::filesystem::remove(file());
  EXPECT_THAT(refusal_to_open(), HasSubstr("or wipe it"));
}

TEST_F(StoreWordsTest, stand_behind_the_newest_step_that_a_failing_drive_gives) {
  make_steps(2);
  faults_->list.push_back(
      {.op = IoOp::kRead, .times = INT64_MAX / 2, .at = layout().table_offset(newest()), .error_number = EIO});
  EXPECT_THAT(refusal_to_open(), HasSubstr("step 1 is the newest that can be read (--from goes on from it)"));
}

TEST_F(StoreWordsTest, name_the_users_folder_where_the_programs_own_lies_in_it) {
  StoreOptions inside = options_with(kWordsOfAFolderInside);
  inside.folder = folder_.path() / "programs-own";
  auto store = RecordStore::create(run_.geometry, run_.identity, inside);
  write_step(*store, run_, 0);
  fail_reads();
  EXPECT_THAT(message_of<Error>([&] { read_verified(*store, run_, run_.records().front()); }),
              AllOf(HasSubstr("a file of its own in " + folder_.path().string()), HasSubstr("try again"),
                    Not(HasSubstr("programs-own"))));
  EXPECT_EQ(kPlainWords.name_of("/drive/file"), "/drive/file");
  EXPECT_EQ(kPlainWords.name_of_folder("/drive"), "/drive");
}

}  // namespace
}  // namespace sluice
