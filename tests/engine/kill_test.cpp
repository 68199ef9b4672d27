// kill -9 of a training process at chosen amounts of store traffic; a resume ends like the run that was never killed.
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <random>

#include "tests/engine/engine_fixture.h"
#include "tests/engine/kill_run.h"
#include "tests/fakes/beside.h"

namespace sluice::testing {
namespace {

struct Ended {
  int signal = 0, exit_code = -1;
  std::string weights, state;
  int64_t traffic = 0, superblocks = 0;
};

struct Child {
  std::string update = "deferred";
  std::string mode = "create";
  int64_t kill_after_bytes = -1, kill_at_superblock = 0;
};

// Runs toy_train in a process of its own, without a shell between: its signal is the process's own.
Ended run_child(const TempFolder& folder, const Child& child) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe(pipe_ends.data()), 0);
  const std::string bytes = std::to_string(child.kill_after_bytes), nth = std::to_string(child.kill_at_superblock);
  const std::string path = folder.path().string(), program = beside_this_program("toy_train");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pipe_ends[1], 1);
    close(pipe_ends[0]);
    execl(program.c_str(), program.c_str(), path.c_str(), child.mode.c_str(), bytes.c_str(), nth.c_str(),
          child.update.c_str(), nullptr);
    _exit(127);
  }
  close(pipe_ends[1]);
  FILE* out = fdopen(pipe_ends[0], "r");
  char weights[16] = {}, state[16] = {};
  long long traffic = 0, superblocks = 0;
  if (std::fscanf(out, "%15s %15s %lld %lld", weights, state, &traffic, &superblocks) < 4) traffic = 0;
  std::fclose(out);
  int status = 0;
  waitpid(pid, &status, 0);
  Ended ended{.weights = weights, .state = state, .traffic = traffic, .superblocks = superblocks};
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  return ended;
}

class Kill : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    TempFolder folder;
    whole_ = run_child(folder, {.update = GetParam()});
    ASSERT_EQ(whole_.exit_code, 0);
    const RunRecord expected = train_reference(kill_run_model(GetParam()), kill_run_reference(GetParam()));
    ASSERT_EQ(whole_.state, fmt::format("{:08x}", expected.state_crc32c));
    int clipped = 0, skipped = 0;
    for (const StepRecord& step : expected.steps) {
      clipped += step.grad_norm > kill_run_reference(GetParam()).max_norm ? 1 : 0;
      skipped += step.skipped ? 1 : 0;
    }
    ASSERT_EQ(skipped > 0, GetParam() == "fp16");
    const int steps = static_cast<int>(expected.steps.size());
    ASSERT_GT(clipped, 0);
    if (GetParam() == "speculative") {
      ASSERT_LT(clipped, steps);
    }
  }

  void expect_same_after(const Child& killed) {
    TempFolder folder;
    const Ended dead = run_child(folder, killed);
    EXPECT_EQ(dead.signal, SIGKILL) << killed.kill_after_bytes << " " << killed.kill_at_superblock;
    const Ended resumed = run_child(folder, {.update = GetParam(), .mode = "resume"});
    EXPECT_EQ(resumed.exit_code, 0);
    EXPECT_EQ(resumed.weights, whole_.weights) << killed.kill_after_bytes << " " << killed.kill_at_superblock;
    EXPECT_EQ(resumed.state, whole_.state);
  }

  Ended whole_;
};

TEST_P(Kill, at_random_amounts_of_traffic_ends_like_the_run_that_was_never_killed) {
  std::mt19937_64 random(2024);
  for (int i = 0; i < 20; ++i) {
    expect_same_after({.update = GetParam(),
                       .kill_after_bytes = static_cast<int64_t>(random() % static_cast<uint64_t>(whole_.traffic))});
  }
}

TEST_P(Kill, between_a_tables_write_and_its_superblocks_ends_like_the_run_that_was_never_killed) {
  ASSERT_GE(whole_.superblocks, 4);  // creation, and steps 2, 4, 6
  for (int64_t nth = 1; nth <= whole_.superblocks; ++nth)
    expect_same_after({.update = GetParam(), .kill_at_superblock = nth});
}

TEST_P(Kill, of_a_resume_and_of_its_resume_ends_the_same) {
  TempFolder folder;
  for (const Child& killed : {Child{.update = GetParam(), .kill_after_bytes = whole_.traffic / 2},
                              Child{.update = GetParam(), .mode = "resume", .kill_after_bytes = whole_.traffic / 4},
                              Child{.update = GetParam(), .mode = "resume", .kill_at_superblock = 1}}) {
    EXPECT_EQ(run_child(folder, killed).signal, SIGKILL);
  }
  EXPECT_EQ(run_child(folder, {.update = GetParam(), .mode = "resume"}).state, whole_.state);
}

INSTANTIATE_TEST_SUITE_P(, Kill, ::testing::Values("deferred", "speculative", "fp16", "device", "device_early"),
                         [](const auto& update) { return update.param; });

}  // namespace
}  // namespace sluice::testing
