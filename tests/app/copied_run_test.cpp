// Copies of a run's folder whose store lies elsewhere: two runs must not go on in one store.
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class CopiedRunTest : public CommandTest {
 protected:
  CopiedRunTest() { name_homes(); }
  Ended train_on(const std::string& drive, const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--set", "sluice.nvme=[\"" + file(drive) + "\"]"});
    return train(out, more);
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy(file(from), file(to), fs::copy_options::recursive);
  }
  std::string is_a_copy() const { return "copy: is a copy of the run in " + file("run"); }
};

TEST_F(CopiedRunTest, does_not_go_on_in_the_store_of_its_original) {
  ASSERT_EQ(train_on("drive", "run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  const std::string store = text_in("drive/sluice-0.swap");
  const Ended refused = train_on("drive", "copy", {"--steps", "4", "--resume"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.last_error_line(), AllOf(HasSubstr(is_a_copy()), HasSubstr("--out " + file("run"))));
  EXPECT_TRUE(text_in("drive/sluice-0.swap") == store);
  EXPECT_EQ(train_on("drive", "run", {"--steps", "4", "--resume"}).exit_code, 0);
  const Ended begun = train_on("drive", "copy", {"--steps", "1", "--overwrite"});
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, AllOf(HasSubstr("is to be replaced; it is that of the run in " + file("run")),
                               HasSubstr("of which " + file("copy") + " is a copy")));
}

TEST_F(CopiedRunTest, goes_on_in_a_copy_of_the_store) {
  ASSERT_EQ(train_on("drive", "run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  copy("drive", "other");
  const Ended resumed = train_on("other", "copy", {"--steps", "4", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(train_on("drive", "run", {"--steps", "4", "--resume"}).exit_code, 0);
  EXPECT_EQ(numbers(metrics("copy")), numbers(metrics("run")));
}

TEST_F(CopiedRunTest, with_a_store_of_its_own_within_goes_on_and_its_trim_takes_that_one) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  EXPECT_EQ(train("copy", {"--steps", "3", "--resume"}).exit_code, 0);
  EXPECT_EQ(sluice({"checkpoint", "trim", "@copy", "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(file("copy/sluice-0.swap")));
  EXPECT_TRUE(fs::exists(file("run/sluice-0.swap")));
}

TEST_F(CopiedRunTest, is_none_where_the_run_was_moved_or_is_found_by_a_link) {
  ASSERT_EQ(train_on("drive", "run", {"--steps", "2"}).exit_code, 0);
  fs::rename(file("run"), file("moved"));
  EXPECT_EQ(train_on("drive", "moved", {"--steps", "3", "--resume"}).exit_code, 0);
  fs::create_directory_symlink(file("moved"), file("run"));
  EXPECT_EQ(train_on("drive", "run", {"--steps", "4", "--resume"}).exit_code, 0);
  EXPECT_EQ(train_on("drive", "moved", {"--steps", "5", "--resume"}).exit_code, 0);
}

TEST_F(CopiedRunTest, of_a_moved_run_is_one_since_it_went_on) {
  ASSERT_EQ(train_on("drive", "first", {"--steps", "2"}).exit_code, 0);
  fs::rename(file("first"), file("run"));
  EXPECT_EQ(train_on("drive", "run", {"--steps", "3", "--resume"}).exit_code, 0);
  copy("run", "copy");
  EXPECT_THAT(train_on("drive", "copy", {"--steps", "4", "--resume"}).last_error_line(), HasSubstr(is_a_copy()));
}

TEST_F(CopiedRunTest, does_not_take_the_store_of_its_original_when_it_is_trimmed) {
  ASSERT_EQ(train_on("drive", "run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  const Ended trimmed = sluice({"checkpoint", "trim", "@copy", "--yes"});
  EXPECT_EQ(trimmed.exit_code, 2);
  EXPECT_THAT(trimmed.last_error_line(), HasSubstr(is_a_copy()));
  EXPECT_TRUE(fs::exists(file("drive/sluice-0.swap")));
  fs::remove_all(file("run"));  // moved, as far as anybody can tell
  EXPECT_EQ(sluice({"checkpoint", "trim", "@copy", "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(file("drive/sluice-0.swap")));
}

TEST_F(CopiedRunTest, that_is_named_by_a_link_whose_folder_json_cannot_name_is_trained_all_the_same) {
  fs::create_directory(file("run-\xff"));
  fs::create_directory_symlink(file("run-\xff"), file("run"));
  ASSERT_EQ(train_on("drive", "run", {"--steps", "2"}).exit_code, 0);
  const Ended resumed = train_on("drive", "run", {"--steps", "3", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

}  // namespace
}  // namespace sluice
