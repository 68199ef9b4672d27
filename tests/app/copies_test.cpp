// Folders of runs that were copied or moved: no command given a copy takes the store of the run that was copied.
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CopiesTest : public CommandTest {
 protected:
  std::vector<std::string> on(const std::string& drive, std::vector<std::string> more) const {
    more.insert(more.end(), {"--set", "sluice.nvme=[\"" + file(drive) + "\"]"});
    return more;
  }
  void copy(const std::string& from, const std::string& to) const {
    fs::copy(file(from), file(to), fs::copy_options::recursive);
  }
};

TEST_F(CopiesTest, a_copy_without_a_store_of_its_own_is_not_gone_on_with_and_says_what_can_be_done) {
  ASSERT_EQ(train("whole", {"--steps", "4"}).exit_code, 0);
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  const std::string store = text_in("drive/sluice-0.swap"), claim = text_in("copy/store.json");
  const Ended refused = train("copy", on("drive", {"--steps", "4", "--resume"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.last_error_line(),
              AllOf(HasSubstr(file("copy") + ": is a copy of the run in " + file("run")), HasSubstr("--set")));
  EXPECT_TRUE(text_in("drive/sluice-0.swap") == store);
  EXPECT_EQ(text_in("copy/store.json"), claim);
  EXPECT_EQ(metrics("copy").size(), 3u);
  copy("drive", "other drive");  // as it says
  for (const auto& [run, drive] : {std::pair("copy", "other drive"), std::pair("run", "drive")}) {
    const Ended more = train(run, on(drive, {"--steps", "4", "--resume"}));
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_EQ(numbers(metrics(run)), numbers(metrics("whole")));
  }
}

TEST_F(CopiesTest, a_copy_with_its_store_is_a_run_of_its_own_unless_it_is_told_to_use_the_other_ones) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  const std::string store = text_in("run/sluice-0.swap");
  EXPECT_THAT(train("copy", on("run", {"--steps", "4", "--resume"})).last_error_line(), HasSubstr("is a copy of"));
  const Ended more = train("copy", {"--steps", "4", "--resume"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_TRUE(text_in("run/sluice-0.swap") == store);
  EXPECT_EQ(metrics("copy").size(), 5u);
}

TEST_F(CopiesTest, a_run_that_was_moved_goes_on_and_is_the_one_that_later_copies_are_of) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  fs::rename(file("run"), file("moved"));
  const Ended more = train("moved", on("drive", {"--steps", "3", "--resume"}));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(json_in("moved/store.json")["run"], fs::canonical(file("moved")).string());
  copy("moved", "copy");
  EXPECT_THAT(train("copy", on("drive", {"--steps", "4", "--resume"})).last_error_line(),
              HasSubstr("is a copy of the run in " + file("moved")));
  fs::create_directory_symlink(file("moved"), file("run"));  // where it was, as links often are
  EXPECT_EQ(train("run", on("drive", {"--steps", "4", "--resume"})).exit_code, 0);
}

// Its claim names a folder that is not there any more, as that of a run which was moved does; the store tells them
// apart.
TEST_F(CopiesTest, a_copy_of_a_run_that_was_moved_and_has_gone_on_takes_nothing_from_it) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  fs::rename(file("run"), file("moved"));
  ASSERT_EQ(train("moved", on("drive", {"--steps", "3", "--resume"})).exit_code, 0);
  const std::string store = text_in("drive/sluice-0.swap"), claim = text_in("copy/store.json");
  const std::string words = file("copy") + ": a run in another folder, of which one is a copy of the other, has opened";
  const Ended refused = train("copy", on("drive", {"--steps", "4", "--resume"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.last_error_line(), AllOf(HasSubstr(words), HasSubstr(file("copy/store.json"))));
  const Ended trimmed = sluice({"checkpoint", "trim", "@copy", "--yes"});
  EXPECT_EQ(trimmed.exit_code, 2);
  EXPECT_THAT(trimmed.last_error_line(), HasSubstr(words));
  EXPECT_EQ(sluice({"checkpoint", "trim", "@copy"}).last_error_line(), trimmed.last_error_line()) << "--yes is no help";
  EXPECT_TRUE(text_in("drive/sluice-0.swap") == store);
  EXPECT_EQ(text_in("copy/store.json"), claim);
  const Ended read = sluice({"checkpoint", "verify", "@copy"});
  EXPECT_EQ(read.exit_code, 0);
  EXPECT_THAT(read.err, HasSubstr("is read as a run in another folder has left it"));
  EXPECT_EQ(train("moved", on("drive", {"--steps", "4", "--resume"})).exit_code, 0);
  fs::remove(file("copy/store.json"));  // as it says, of a folder that came from a backup
  EXPECT_EQ(train("copy", on("drive", {"--steps", "5", "--resume"})).exit_code, 0);
  EXPECT_THAT(train("moved", on("drive", {"--steps", "6", "--resume"})).last_error_line(),
              HasSubstr("has opened the store"));
}

TEST_F(CopiesTest, a_copy_in_which_a_command_is_refused_takes_nothing_from_the_run) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "4"})).exit_code, 0);
  copy("run", "copy");
  fs::rename(file("run"), file("moved"));
  const std::string claim = text_in("copy/store.json");
  const Ended refused = train("copy", on("drive", {"--steps", "5", "--resume", "--from-step", "1"}));
  EXPECT_THAT(refused.last_error_line(), HasSubstr("there is no step 1 to go on from"));
  EXPECT_EQ(text_in("copy/store.json"), claim);
  const Ended more = train("moved", on("drive", {"--steps", "5", "--resume"}));
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

// The first drive tells whose the store is.
TEST_F(CopiesTest, a_copy_of_a_run_on_two_drives_that_was_moved_and_has_gone_on_takes_neither) {
  const auto on_both = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "sluice.nvme=" + Json({file("one"), file("two")}).dump()});
    return more;
  };
  ASSERT_EQ(train("run", on_both({"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  fs::rename(file("run"), file("moved"));
  ASSERT_EQ(train("moved", on_both({"--steps", "3", "--resume"})).exit_code, 0);
  const auto trim = [this] { return sluice({"checkpoint", "trim", "@copy", "--yes"}); };
  EXPECT_THAT(trim().last_error_line(), HasSubstr("has opened the store"));
  fs::rename(file("one"), file("not mounted"));
  EXPECT_THAT(trim().last_error_line(), AllOf(HasSubstr(file("one")), HasSubstr("remove by hand")));
  EXPECT_TRUE(fs::exists(file("two/sluice-0.swap")));
  fs::rename(file("not mounted"), file("one"));
  const Ended over = train("copy", on_both({"--steps", "1", "--overwrite"}));
  EXPECT_EQ(over.exit_code, 0) << over.err;
  for (const char* drive : {"one", "two"}) {
    EXPECT_THAT(over.err,
                HasSubstr(file(drive) +
                          ": the store there is to be replaced, and a run in another folder has gone on with it"));
  }
}

TEST_F(CopiesTest, a_run_whose_store_came_from_a_backup_goes_on) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  ASSERT_EQ(train("run", on("drive", {"--steps", "3", "--resume"})).exit_code, 0);
  copy("drive", "backup");
  ASSERT_EQ(train("run", on("drive", {"--steps", "4", "--resume"})).exit_code, 0);
  fs::remove_all(file("drive"));
  fs::rename(file("backup"), file("drive"));
  const Ended more = train("run", on("drive", {"--steps", "4", "--resume"}));
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

TEST_F(CopiesTest, a_run_in_whose_old_place_another_one_was_begun_goes_on) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  fs::rename(file("run"), file("moved"));
  ASSERT_EQ(train("run", on("other", {"--steps", "1"})).exit_code, 0);
  const Ended more = train("moved", on("drive", {"--steps", "3", "--resume"}));
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

TEST_F(CopiesTest, a_copy_made_of_links_has_no_store_of_its_own) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  using Link = void (*)(const fs::path&, const fs::path&);
  for (const Link link : {Link(fs::create_hard_link), Link(fs::create_symlink)}) {
    fs::create_directory(file("copy"));
    for (const auto& entry : fs::directory_iterator(file("run"))) {
      link(entry.path(), file("copy") / entry.path().filename());
    }
    const Ended refused = train("copy", {"--steps", "3", "--resume"});
    EXPECT_THAT(refused.last_error_line(), HasSubstr("is a copy of the run in " + file("run"))) << refused.err;
    fs::remove_all(file("copy"));
  }
  EXPECT_EQ(metrics("run").size(), 3u);
}

TEST_F(CopiesTest, a_run_whose_claim_names_a_folder_that_cannot_be_read_goes_on) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  fs::remove(file("run/store.json"));
  fs::create_directory(file("run/store.json"));  // reading it fails
  const Ended more = train("copy", on("drive", {"--steps", "3", "--resume"}));
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

// As after a power cut. In a drive's folder another run may have been begun since.
TEST_F(CopiesTest, a_damaged_claim_on_a_store_elsewhere_is_not_followed_until_it_is_removed) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  const std::string words = file("run/store.json") + ": nothing in it can be understood";
  const auto trim = [this] { return sluice({"checkpoint", "trim", "@run", "--yes"}); };
  for (const std::string& left :
       {std::string(), std::string(100, '\0'), std::string("{}"), std::string("{\"number\"")}) {
    std::ofstream(file("run/store.json")) << left;
    EXPECT_THAT(sluice({"checkpoint", "verify", "@run"}).err, HasSubstr(words)) << left;
    for (const Ended& ended : {trim(), train("run", on("drive", {"--steps", "3", "--resume"}))}) {
      EXPECT_EQ(ended.exit_code, 2);
      EXPECT_THAT(ended.last_error_line(), AllOf(HasSubstr(words), HasSubstr("remove that file and say this again")));
    }
  }
  fs::remove(file("run/store.json"));
  EXPECT_EQ(train("run", on("drive", {"--steps", "3", "--resume"})).exit_code, 0);
  EXPECT_EQ(trim().exit_code, 0);
}

TEST_F(CopiesTest, a_damaged_claim_on_a_store_in_the_runs_own_folder_is_said_and_mended) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  std::ofstream(file("run/store.json")) << "";
  const Ended more = train("run", {"--steps", "3", "--resume"});
  EXPECT_EQ(more.exit_code, 0);
  EXPECT_THAT(more.err, HasSubstr(file("run/store.json") + ": nothing in it can be understood"));
  EXPECT_TRUE(json_in("run/store.json").contains("openers"));
}

// As it was written by versions before: whose it is cannot be told.
TEST_F(CopiesTest, a_claim_without_a_path_is_taken_as_it_is) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  Json claim = json_in("run/store.json");
  claim.erase("run");
  std::ofstream(file("run/store.json")) << claim;
  copy("run", "copy");
  EXPECT_EQ(train("copy", on("drive", {"--steps", "3", "--resume"})).exit_code, 0);
  EXPECT_EQ(json_in("copy/store.json")["run"], fs::canonical(file("copy")).string());
}

TEST_F(CopiesTest, to_begin_a_copy_again_says_whose_store_goes) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  const std::string words = "is that of the run in " + file("run") + ", of which " + file("copy") + " is a copy";
  const Ended elsewhere = train("copy", on("other", {"--steps", "1", "--overwrite"}));
  EXPECT_EQ(elsewhere.exit_code, 0) << elsewhere.err;
  EXPECT_THAT(elsewhere.err, AllOf(Not(HasSubstr(words)), Not(HasSubstr("remove it")))) << "the original's";
  fs::remove_all(file("copy"));
  copy("run", "copy");
  const Ended over = train("copy", on("drive", {"--steps", "1", "--overwrite"}));
  EXPECT_EQ(over.exit_code, 0) << over.err;
  EXPECT_THAT(over.err, HasSubstr(file("drive") + ": the store there is to be replaced, and " + words));
  EXPECT_THAT(train("run", on("drive", {"--steps", "3", "--resume"})).last_error_line(), HasSubstr("is another run's"));
}

TEST_F(CopiesTest, trim_of_a_copy_does_not_take_the_store_of_the_run_that_was_copied) {
  ASSERT_EQ(train("run", on("drive", {"--steps", "2"})).exit_code, 0);
  copy("run", "copy");
  const auto trim = [this] { return sluice({"checkpoint", "trim", "@copy", "--yes"}); };
  EXPECT_EQ(trim().exit_code, 2);
  EXPECT_THAT(trim().last_error_line(), HasSubstr("is a copy of the run in " + file("run")));
  fs::resize_file(file("run/config.json"), 40);  // where that run's store is cannot be told any more
  EXPECT_EQ(trim().exit_code, 2);
  EXPECT_TRUE(fs::exists(file("drive/sluice-0.swap")));
  fs::remove_all(file("run"));  // moved, as far as anybody can tell
  EXPECT_EQ(trim().exit_code, 0);
  EXPECT_FALSE(fs::exists(file("drive/sluice-0.swap")));
}

TEST_F(CopiesTest, trim_of_a_copy_with_a_store_of_its_own_takes_that_one) {
  ASSERT_EQ(train("run", {"--steps", "2"}).exit_code, 0);
  copy("run", "copy");
  EXPECT_EQ(sluice({"checkpoint", "trim", "@copy", "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(file("copy/sluice-0.swap")));
  EXPECT_TRUE(fs::exists(file("run/sluice-0.swap")));
}

TEST_F(CopiesTest, a_run_behind_a_link_to_a_name_that_json_cannot_hold_is_trained_and_gone_on_with) {
  fs::create_directory(file("run-\xff"));
  fs::create_directory_symlink(file("run-\xff"), file("run"));
  const Ended ended = train("run", on("drive", {"--steps", "1"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Ended more = train("run", on("drive", {"--steps", "2", "--resume"}));
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

}  // namespace
}  // namespace sluice
