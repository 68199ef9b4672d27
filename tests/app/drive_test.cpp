// Drives that fail under whole training runs: full, pulled out, read-only, files cut short. A run ends with an error
// that says what to do, and goes on to the same bits where that can be; what is lost is never replaced unasked.
#include <functional>

#include "core/bytes.h"
#include "tests/app/command_fixture.h"
#include "tests/fakes/flip_byte.h"
#include "tests/fakes/mounted_drive.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class DriveTest : public CommandTest {
 protected:
  static std::vector<std::string> store_in(const fs::path& folder, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--set", "sluice.nvme=[\"" + folder.string() + "\"]"});
    return more;
  }
  // Numbers of a run that nothing happens to, and half of its traffic.
  std::string whole_run() {
    const Ended ended = train_with({}, "whole");
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    half_traffic_ = traffic_of(ended) / 2;
    return numbers(metrics("whole"));
  }
  int64_t half_traffic_ = 0;
};

// What the run's folder takes without the store, the lines of metrics and the timeline.
int64_t fixed_bytes(const fs::path& run) {
  int64_t bytes = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(run)) {
    const std::string name = file.path().filename().string();
    if (name == "sluice-0.swap" || name == "metrics.jsonl" || name == "timeline.json") continue;
    bytes += round_up(static_cast<int64_t>(file.file_size()), 4096);
  }
  return bytes;
}

TEST_F(DriveTest, token_ids_that_change_or_go_under_a_run_end_it_and_it_goes_on_to_the_same_bits) {
  const std::string expected = whole_run();
  for (const char* fault : {"change-tokens-after-bytes", "cut-tokens-after-bytes"}) {
    const Ended ended = train_with({fault, half_traffic_}, "run");
    EXPECT_EQ(ended.exit_code, 1) << fault << "\n" << ended.err;
    EXPECT_THAT(ended.last_error_line(), AllOf(HasSubstr(file("run/tokens.cache")), HasSubstr("--resume"))) << fault;
    const Ended resumed = train("run", {"--resume"});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, AllOf(HasSubstr("tokens are made anew"), HasSubstr("resuming after step ")));
    EXPECT_EQ(numbers(metrics("run")), expected) << fault;
    fs::remove_all(file("run"));
  }
}

// Of the step that `checkpoint verify` reads first. Which byte that is, only the store knows.
void damage_last_step(const fs::path& file, const std::function<bool()>& is_damaged) {
  for (int64_t at = static_cast<int64_t>(fs::file_size(file)) / 2; at > 0; at -= 4096) {
    flip_byte(file, at);
    if (is_damaged()) return;
    flip_byte(file, at);
  }
  FAIL() << "no byte of the last step was found";
}

TEST_F(DriveTest, that_changed_a_byte_of_the_last_commit_costs_that_step_alone) {
  const std::string expected = whole_run();
  const std::vector<std::string> verify = {"checkpoint", "verify", file("whole")};
  const Ended whole = sluice(verify);
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  const int64_t last = std::stoll(whole.out.substr(whole.out.find("step ") + 5));
  const std::string before = std::to_string(last - 1);
  EXPECT_EQ(whole.out, "step " + std::to_string(last) + " is whole\nstep " + before + " is whole, too\n");
  const fs::path copy = file("copy.swap"), store = file("whole/sluice-0.swap");
  fs::copy_file(store, copy);
  damage_last_step(store, [&] { return sluice(verify).out.find("not whole any more") != std::string::npos; });
  const Ended older = sluice(verify);
  EXPECT_EQ(older.exit_code, 0) << "as a run leaves it that was cut off before its commit";
  EXPECT_THAT(older.out, AllOf(HasSubstr("step " + std::to_string(last) + " is whole\n"),
                               HasSubstr("write over step " + before + " before they are committed")));
  fs::rename(copy, store);
  damage_last_step(file("whole/sluice-0.swap"), [&] { return sluice(verify).exit_code == 1; });
  const Ended damaged = sluice(verify);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("step " + std::to_string(last) + " is not whole: chunk "),
                                 HasSubstr("step " + before + " is whole: train --resume --from-step " + before)));
  const Ended met = train("whole", {"--resume"});  // it ends before anything is written over
  EXPECT_EQ(met.exit_code, 1);
  EXPECT_THAT(met.last_error_line(), AllOf(HasSubstr("not the bytes written"), HasSubstr("checkpoint verify")));
  EXPECT_EQ(sluice(verify).out, damaged.out);
  const Ended refused = train("whole", {"--resume", "--from-step", "1"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.last_error_line(), AllOf(HasSubstr("no step 1 to go on from"),
                                               HasSubstr("step " + std::to_string(last) + ", and step " + before)));
  EXPECT_THAT(train("nothing", {"--resume", "--from-step", before}).last_error_line(), HasSubstr("no run is there"));
  for (const std::string& steps : {std::string("1"), before}) {
    EXPECT_THAT(train("whole", {"--resume", "--from-step", before, "--steps", steps}).last_error_line(),
                HasSubstr("nothing would be trained"));
  }
  const Ended resumed = train("whole", {"--resume", "--from-step", before});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step " + before));
  EXPECT_EQ(numbers(metrics("whole")), expected);
  EXPECT_EQ(sluice(verify).exit_code, 0);
}

// Whichever read it is, of a header, a superblock, a table or a record of either step.
TEST_F(DriveTest, that_fails_a_read_is_named_by_verify_which_fails_where_it_is_of_the_last_step) {
  whole_run();
  const std::vector<std::string> verify = {"checkpoint", "verify", file("whole")};
  const std::string whole = sluice(verify).out;
  const int64_t newest = std::stoll(whole.substr(whole.find("step ") + 5));
  const std::string last = std::to_string(newest), before = std::to_string(newest - 1);
  int of_last = 0, of_before = 0;
  for (int64_t request = 0, unnoticed = 0; unnoticed < 2; ++request) {  // as those behind the last one are
    const Ended ended = sluice_with({"fail-read", request}, verify);
    if ((ended.out + ended.err).find("Input/output error") == std::string::npos) {
      ++unnoticed;
      continue;
    }
    unnoticed = 0;
    EXPECT_THAT(ended.out + ended.err, HasSubstr("read of " + file("whole/sluice-0.swap") + " failed (")) << request;
    const bool keeps_last = ended.out.starts_with("step " + last + " is whole\n");
    EXPECT_EQ(ended.exit_code, keeps_last ? 0 : 1) << ended.out;
    EXPECT_THAT(ended.out, HasSubstr(keeps_last ? "step " + last : "step " + before + " is whole: train --resume"));
    EXPECT_THAT(ended.out, Not(HasSubstr("write over"))) << "nothing was read that is wrong";
    of_last += ended.out.find("step " + last + " cannot be read: ") == 0 ? 1 : 0;
    of_before += ended.out.find("step " + before + " cannot be read: ") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(of_last, 0);
  EXPECT_GT(of_before, 0);
}

TEST_F(DriveTest, with_something_else_in_the_stores_place_is_named_for_what_it_is) {
  whole_run();
  const std::vector<std::string> verify = {"checkpoint", "verify", file("whole")};
  const fs::path store = file("whole/sluice-0.swap");
  fs::resize_file(store, 0);
  const Ended empty = sluice(verify);
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, AllOf(HasSubstr(store.string() + " is empty"), HasSubstr("--overwrite")));
  fs::resize_file(store, 1 << 20);  // zeros
  const Ended zeros = sluice(verify);
  EXPECT_EQ(zeros.exit_code, 1);
  EXPECT_THAT(zeros.err, AllOf(HasSubstr(store.string() + ": neither copy"), HasSubstr("--overwrite")));
  fs::remove(store);
  fs::create_directory(store);
  const Ended folder = sluice(verify);
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_THAT(folder.err, HasSubstr(store.string() + " is no regular file"));
}

TEST_F(DriveTest, that_damaged_the_last_superblock_has_lost_that_step_and_verify_says_so) {
  whole_run();
  const std::vector<std::string> verify = {"checkpoint", "verify", file("whole")};
  const std::string whole = sluice(verify).out;
  const int64_t last = std::stoll(whole.substr(whole.find("step ") + 5));
  int lost = 0;
  for (const int64_t superblock : {4096, 8192}) {
    flip_byte(file("whole/sluice-0.swap"), superblock + 24);
    const Ended ended = sluice(verify);
    lost += ended.exit_code;
    const std::string step = "step " + std::to_string(last), before = "step " + std::to_string(last - 1);
    EXPECT_EQ(ended.out,
              ended.exit_code == 0
                  ? step + " is whole\nthere is no step before it to go back to\n"
                  : step + " is not whole: its commit is damaged, or was cut off\n" + before +
                        " is whole: train --resume goes on from it\nthere is no step before it to go back to\n");
    flip_byte(file("whole/sluice-0.swap"), superblock + 24);
  }
  EXPECT_EQ(lost, 1);
}

TEST_F(DriveTest, a_full_disk_under_the_runs_folder_ends_the_run_and_it_goes_on_when_there_is_room) {
  const std::vector<std::string> steps = {"--steps", "20"};
  const Ended whole = train("whole", steps);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  // Room for some of the lines of metrics, and not for a timeline.
  const int64_t room = fixed_bytes(file("whole")) + 2 * 4096;
  ASSERT_GT(fs::file_size(file("whole/metrics.jsonl")), 2u * 4096);
  MountedDrive disk(MountedDrive::Kind::kMemory, file("run"), room);
  if (!disk.reason().empty()) GTEST_SKIP() << disk.reason();
  const Ended full = train("run", store_in(file("store"), steps));
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_THAT(full.last_error_line(),
              AllOf(HasSubstr(file("run/metrics.jsonl")), HasSubstr("No space left"), HasSubstr("--resume")));
  EXPECT_THAT(full.err, AllOf(HasSubstr("the step's timeline is not kept"), HasSubstr(file("run/timeline.json"))));
  const std::string last = std::to_string(metrics("run").size());
  disk.resize(64 * kMiB);
  std::vector<std::string> resume = steps;
  resume.emplace_back("--resume");
  const Ended resumed = train("run", store_in(file("store"), resume));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("resuming after step " + last), Not(HasSubstr("has lines of"))));
  EXPECT_EQ(numbers(metrics("run")), numbers(metrics("whole")));
}

// Its folder is on another drive than the store, and takes no file any more once the store is made.
TEST_F(DriveTest, that_takes_no_file_of_a_run_as_it_begins_leaves_no_store_in_the_way_of_the_next) {
  const CommandFault late{.name = "refuse-names-after-bytes", .value = 1};
  const std::vector<std::string> store = store_in(file("drive"), {"--steps", "1"});
  for (const char* refused_file : {"run/tokenizer.cache", "run/store.json"}) {  // the ids stay, once they are made
    std::vector<std::string> again = store;
    again.emplace_back("--overwrite");
    const Ended refused = train_with(late, "run", again);
    ASSERT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_THAT(refused.last_error_line(), AllOf(HasSubstr(file(refused_file)), HasSubstr("Input/output error")));
    EXPECT_FALSE(fs::exists(file("drive/sluice-0.swap")));
    EXPECT_FALSE(fs::exists(file("run/config.json")));
    const Ended begun = train("run", store);
    EXPECT_EQ(begun.exit_code, 0) << begun.err;
  }
}

TEST_F(DriveTest, a_drive_pulled_out_in_the_middle_of_a_run_ends_it_and_the_run_goes_on_when_the_drive_is_back) {
  MountedDrive drive(MountedDrive::Kind::kExt4, file("drive"), 64 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::string expected = whole_run();
  const Ended pulled = train_with({"pull-drive-after-bytes", half_traffic_}, "run", store_in(drive.path()));
  if (pulled.exit_code == kFaultNotPossible) GTEST_SKIP() << "ext4 cannot be shut down here";
  EXPECT_EQ(pulled.exit_code, 1) << pulled.err;
  EXPECT_THAT(pulled.last_error_line(),
              AllOf(HasSubstr((drive.path() / "sluice-0.swap").string()), HasSubstr("--resume")));
  drive.mount_again();
  const Ended resumed = train("run", store_in(drive.path(), {"--resume"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resuming after step "));
  EXPECT_EQ(numbers(metrics("run")), expected);
}

TEST_F(DriveTest, a_drive_that_has_turned_read_only_is_refused_by_name_and_the_run_goes_on_when_it_is_writable) {
  MountedDrive drive(MountedDrive::Kind::kExt4, file("drive"), 64 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  const std::string expected = whole_run();
  ASSERT_EQ(train("run", store_in(drive.path(), {"--steps", "3"})).exit_code, 0);
  drive.make_read_only();
  for (const char* again : {"--resume", "--overwrite"}) {
    const Ended refused = train("run", store_in(drive.path(), {again}));
    EXPECT_EQ(refused.exit_code, 1) << refused.err;
    EXPECT_THAT(refused.last_error_line(),
                AllOf(HasSubstr((drive.path() / "sluice-0.swap").string()), HasSubstr("writable")));
  }
  drive.make_writable();
  const Ended resumed = train("run", store_in(drive.path(), {"--resume"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(numbers(metrics("run")), expected);
}

// A drive with errors is mounted so by many systems: what was trained can be had from it still.
TEST_F(DriveTest, a_run_on_a_drive_that_is_read_only_can_be_exported_and_generated_from_and_nothing_in_it_changes) {
  MountedDrive drive(MountedDrive::Kind::kExt4, file("drive"), 64 * kMiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  ASSERT_EQ(train("drive/run", {"--steps", "3"}).exit_code, 0);
  const auto all_of_it = [&] {
    EXPECT_EQ(sluice({"checkpoint", "export", "@drive/run", "@model"}).exit_code, 0);
    return text_in("model/model.safetensors") + sluice({"generate", "@drive/run", "--tokens", "8"}).out;
  };
  const std::string expected = all_of_it();
  const std::string store = text_in("drive/run/sluice-0.swap");
  drive.make_read_only();
  fs::remove_all(file("model"));
  EXPECT_EQ(all_of_it(), expected);
  const Ended exported = sluice({"checkpoint", "export", "@drive/run", "@model"});
  EXPECT_THAT(exported.err, AllOf(HasSubstr("opened for reading alone"), HasSubstr("Read-only file system")));
  EXPECT_EQ(text_in("drive/run/sluice-0.swap"), store);
  drive.make_writable();
  const Ended resumed = train("drive/run", {"--steps", "4", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

// What was cut off is gone. The run says so, trains on none of it, and starts anew when it is told to.
TEST_F(DriveTest, a_store_cut_short_under_a_run_ends_it_and_is_neither_resumed_nor_replaced_unasked) {
  const std::string expected = whole_run();
  for (const char* fault : {"cut-to-nothing-after-bytes", "cut-in-half-after-bytes"}) {
    const Ended cut = train_with({fault, half_traffic_}, "run");
    EXPECT_EQ(cut.exit_code, 1) << fault << "\n" << cut.err;
    EXPECT_THAT(cut.last_error_line(), HasSubstr(file("run/sluice-0.swap"))) << fault;
    const size_t lines = metrics("run").size();
    EXPECT_GT(lines, 0u);
    const Ended resumed = train("run", {"--resume"});
    EXPECT_NE(resumed.exit_code, 0) << fault << "\n" << resumed.err;
    EXPECT_THAT(resumed.last_error_line(), AllOf(HasSubstr(file("run")), HasSubstr("--overwrite"))) << fault;
    EXPECT_EQ(metrics("run").size(), lines) << fault;
    const Ended again = train("run", {"--overwrite"});
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(numbers(metrics("run")), expected);
    fs::remove_all(file("run"));
  }
}

}  // namespace
}  // namespace sluice
