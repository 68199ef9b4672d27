// Training that is killed or asked to stop in the middle, and goes on to the same bits.
#include <csignal>
#include <random>

#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

class KillTest : public CommandTest {
 protected:
  Ended train_with(const std::string& fault, int64_t value, const std::string& out,
                   const std::vector<std::string>& more = {}) const {
    return CommandTest::train_with({fault, value}, out, more);
  }

  void SetUp() override {
    if (traffic_ > 0) return;
    const Ended ended = train_with("count", 0, "whole");
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    expected_ = numbers(metrics("whole"));
    traffic_ = traffic_of(ended);
    ASSERT_GT(traffic_, 0);
  }

  // Returns what the resumed run said.
  std::string expect_resumed_run_equal(const std::string& out, const std::string& what) {
    const Ended resumed = train(out, {"--resume"});
    EXPECT_EQ(resumed.exit_code, 0) << what << "\n" << resumed.err;
    EXPECT_EQ(numbers(metrics(out)), expected_) << what;
    std::filesystem::remove_all(file(out));
    return resumed.err;
  }

  void kill_and_resume(const std::string& fault, int64_t value) {
    const Ended killed = train_with(fault, value, "killed");
    ASSERT_EQ(killed.signal, SIGKILL) << fault << " " << value << "\n" << killed.err;
    expect_resumed_run_equal("killed", fault + " " + std::to_string(value));
  }

  // Of a run that nothing happens to: the same for every test, made by the first one of a process.
  static inline std::string expected_;
  static inline int64_t traffic_ = 0;
};

TEST_F(KillTest, at_random_byte_counts_loses_nothing) {
  constexpr int kKills = SLUICE_IS_SANITIZED ? 5 : 15;
  std::mt19937_64 random(7);
  for (int i = 0; i < kKills; ++i) {
    kill_and_resume("kill-after-bytes", static_cast<int64_t>(random() % static_cast<uint64_t>(traffic_)));
  }
}

TEST_F(KillTest, between_the_table_and_the_superblock_loses_nothing) {
  constexpr int64_t kLast = SLUICE_IS_SANITIZED ? 2 : 5;
  for (int64_t superblock = 1; superblock <= kLast; ++superblock) kill_and_resume("kill-at-superblock", superblock);
}

TEST_F(KillTest, before_the_first_commit_starts_from_the_beginning_and_says_so) {
  ASSERT_EQ(train_with("kill-at-superblock", 1, "killed").signal, SIGKILL);
  const Ended resumed = train("killed", {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, testing::HasSubstr("starting from the beginning"));
  EXPECT_EQ(numbers(metrics("killed")), expected_);
}

TEST_F(KillTest, a_write_that_fails_ends_the_run_with_its_error_and_the_run_can_be_resumed) {
  const Ended failed = train_with("fail-write", 60, "failed");
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_THAT(failed.last_error_line(), testing::StartsWith("sluice: "));
  EXPECT_THAT(failed.last_error_line(), testing::HasSubstr("Input/output error"));
  EXPECT_THAT(failed.last_error_line(), testing::HasSubstr("sluice-0.swap"));
  expect_resumed_run_equal("failed", "fail-write");
}

// Steps after the last commit are gone: their lines are dropped, and they are trained again.
TEST_F(KillTest, with_commits_every_third_step_loses_only_steps_that_are_trained_again) {
  const std::vector<std::string> seldom = {"--set", "sluice.commit_interval=3"};
  const Ended counted = train_with("count", 0, "seldom", seldom);
  ASSERT_EQ(counted.exit_code, 0) << counted.err;
  EXPECT_EQ(numbers(metrics("seldom")), expected_);
  const int64_t traffic = traffic_of(counted);
  size_t lost = 0;
  for (const int64_t percent : {50, 65, 80, 95}) {
    ASSERT_EQ(train_with("kill-after-bytes", traffic * percent / 100, "killed", seldom).signal, SIGKILL);
    std::ifstream stream(file("killed/metrics.jsonl"));
    const auto lines = std::count(std::istreambuf_iterator<char>(stream), {}, '\n');
    const std::string said = expect_resumed_run_equal("killed", std::to_string(percent) + " percent");
    const size_t at = said.find("resuming after step ");
    const int64_t committed = at == std::string::npos ? 0 : std::stoll(said.substr(at + 20));
    EXPECT_EQ(committed % 3, 0);
    lost += lines > committed;
  }
  EXPECT_GT(lost, 0u) << "no kill fell between two commits";
}

TEST_F(KillTest, on_two_drives_with_seldom_commits_loses_only_steps_that_are_trained_again) {
  const std::vector<std::string> drives = {"--set", "sluice.nvme=[\"" + file("a") + "\",\"" + file("b") + "\"]"};
  std::vector<std::string> seldom = drives, resume = drives;
  seldom.insert(seldom.end(), {"--set", "sluice.commit_interval=3"});
  resume.emplace_back("--resume");
  for (const int64_t superblock : {2, 3}) {  // of step 3 and of step 6
    const Ended killed = CommandTest::train_with({"kill-at-superblock", superblock}, "killed", seldom);
    ASSERT_EQ(killed.signal, SIGKILL) << killed.err;
    const Ended resumed = train("killed", resume);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, testing::HasSubstr(superblock == 3 ? "resuming after step 3"
                                                                : "resuming after step 0: no later one was committed"));
    EXPECT_EQ(numbers(metrics("killed")), expected_);
    for (const char* folder : {"killed", "a", "b"}) std::filesystem::remove_all(file(folder));
  }
}

TEST_F(KillTest, twice_in_one_run_loses_nothing) {
  ASSERT_EQ(train_with("kill-after-bytes", traffic_ / 2, "killed").signal, SIGKILL);
  const Ended again = train_with("kill-after-bytes", traffic_ / 4, "killed", {"--resume"});
  ASSERT_EQ(again.signal, SIGKILL) << again.err;
  expect_resumed_run_equal("killed", "twice");
}

TEST_F(KillTest, an_interrupt_finishes_the_step_commits_and_names_resume) {
  const Ended stopped = train_with("interrupt-after-bytes", traffic_ / 2, "stopped");
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.last_error_line(), testing::HasSubstr("--resume"));
  const std::vector<Json> lines = metrics("stopped");
  ASSERT_FALSE(lines.empty());
  ASSERT_LT(lines.size(), 6u);
  // The step that was under way is committed: the resumed run says that it goes on after it.
  const std::string last = lines.back()["step"].dump();
  EXPECT_THAT(stopped.last_error_line(), testing::HasSubstr("stopped after step " + last + ", committed"));
  const Ended resumed = train("stopped", {"--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, testing::HasSubstr("resuming after step " + last));
  EXPECT_EQ(numbers(metrics("stopped")), expected_);
}

TEST_F(KillTest, a_request_to_terminate_does_the_same) {
  const Ended stopped = train_with("terminate-after-bytes", traffic_ / 2, "stopped");
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  expect_resumed_run_equal("stopped", "terminate");
}

// timeout(1) sends one to the process and one to its group.
TEST_F(KillTest, two_requests_to_terminate_at_once_are_one) {
  const Ended stopped = train_with("terminate-twice-after-bytes", traffic_ / 2, "stopped");
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_THAT(stopped.last_error_line(), testing::HasSubstr("committed"));
  expect_resumed_run_equal("stopped", "twice");
}

// Two drives are weighed before there are files on them, through the queue that sends the request.
TEST_F(KillTest, a_request_before_the_store_is_made_ends_the_run_and_leaves_no_folder) {
  std::filesystem::create_directory(file("mine"));
  const std::string drives = "sluice.nvme=[\"" + file("new/a") + "\",\"" + file("mine/b") + "\"]";
  for (const auto& [fault, signal] :
       {std::pair<std::string, int>("interrupt-after-bytes", SIGINT), {"terminate-after-bytes", SIGTERM}}) {
    const Ended ended = train_with(fault, 1, "runs/stopped", {"--set", drives});
    EXPECT_EQ(ended.exit_code, 128 + signal) << ended.err;
    for (const char* made : {"runs", "new", "mine/b"}) EXPECT_FALSE(std::filesystem::exists(file(made))) << made;
    EXPECT_TRUE(std::filesystem::exists(file("mine")));
  }
}

TEST_F(KillTest, a_request_while_the_store_is_made_leaves_none_in_the_way_of_the_next_run) {
  const std::vector<std::string> elsewhere = {"--set", "sluice.nvme=[\"" + file("drive") + "\"]"};
  const Ended stopped = train_with("interrupt-after-bytes", traffic_ / 50, "stopped", elsewhere);
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.last_error_line(), testing::HasSubstr("before a step was trained"));
  EXPECT_FALSE(std::filesystem::exists(file("drive/sluice-0.swap")));
  const Ended begun = train("stopped", elsewhere);
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_EQ(numbers(metrics("stopped")), expected_);
}

TEST_F(KillTest, a_request_while_a_store_is_read_leaves_it_as_it_was) {
  ASSERT_EQ(train("stopped", {"--steps", "3"}).exit_code, 0);
  const size_t lines = metrics("stopped").size();
  const Ended stopped = train_with("interrupt-after-bytes", 65536, "stopped", {"--resume"});
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.last_error_line(), testing::HasSubstr("before a step was trained"));
  EXPECT_EQ(metrics("stopped").size(), lines);
  EXPECT_THAT(expect_resumed_run_equal("stopped", "read"), testing::HasSubstr("resuming after step 3"));
}

TEST_F(KillTest, a_terminal_that_is_closed_does_the_same) {
  const Ended stopped = train_with("hang-up-after-bytes", traffic_ / 2, "stopped");
  EXPECT_EQ(stopped.exit_code, 129) << stopped.err;
  expect_resumed_run_equal("stopped", "hang-up");
}

}  // namespace
}  // namespace sluice
