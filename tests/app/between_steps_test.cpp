// What training does between steps: commits that are due, and room for the next line of metrics.
#include "app/train.h"
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMinute = 60'000'000'000;

// State is in host memory and commits take long: a plan has 20 steps between them or more.
class BetweenStepsTest : public CommandTest {
 protected:
  BetweenStepsTest() {
    Json machine = json_in("machine.json");
    machine["commit_ms"] = 1000;
    std::ofstream(file("machine.json")) << machine;
  }
  Ended train_by(const Clock& clock, int64_t steps, OpenMode open = OpenMode::kCreate) const {
    const TrainOptions options{.config = file("run.json"),
                               .overrides = {"sluice.host_memory=16MiB", "sluice.nvme=[\"" + file("drive") + "\"]",
                                             R"(sluice.placement={"weights": "host", "state": "host"})"},
                               .data = file("text.txt"),
                               .steps = steps,
                               .out = file("run"),
                               .open = open,
                               .machine = file("machine.json"),
                               .clock = clock};
    return run_forked([&options] {
      try {
        Console console;
        run_training(options, console);
        return 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
      }
    });
  }
  static int64_t written(const Json& step) { return step["lanes"]["write"]["bytes"]; }
};

TEST_F(BetweenStepsTest, a_commit_comes_after_a_minute_however_many_steps_lie_between_commits) {
  for (const int64_t jump : {int64_t{1}, kMinute}) {
    const Clock clock = [jump, now = int64_t{0}]() mutable { return now += jump; };
    const Ended ended = train_by(clock, 4, OpenMode::kOverwrite);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_GE(json_in("run/config.json")["sluice"]["commit_interval"], 20);
    for (const Json& step : metrics("run")) {
      if (step.contains("final") || step["step"] == 1) continue;
      EXPECT_EQ(written(step) > 0, jump == kMinute) << step;
    }
  }
}

// Not to the drive of the store, which is another.
TEST_F(BetweenStepsTest, a_folder_of_a_run_that_goes_ends_it_after_a_step_that_is_committed_with_its_line) {
  const Clock clock = [this, steps = 0]() mutable {
    if (steps++ == 3) fs::rename(file("run"), file("moved"));
    return int64_t{0};
  };
  const Ended ended = train_by(clock, 6);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("no line can be written: committing step 2, to end there"));
  EXPECT_THAT(ended.last_error_line(), HasSubstr(file("run/metrics.jsonl")));
  EXPECT_EQ(metrics("moved").size(), 2u);
  fs::rename(file("moved"), file("run"));
  const Ended more = train_by(now_ns, 4, OpenMode::kResume);
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, AllOf(HasSubstr("resuming after step 2"), Not(HasSubstr("has lines of"))));
}

// As where a file system cannot keep room for it.
TEST_F(BetweenStepsTest, a_step_whose_line_finds_no_room_is_committed_before_the_run_ends) {
  const std::string lines = file("run/metrics.jsonl");
  const Clock clock = [&, steps = 0]() mutable {
    if (steps++ == 3) {
      fs::rename(lines, file("lines"));
      fs::create_symlink("/dev/full", lines);
    }
    return int64_t{0};
  };
  const Ended ended = train_by(clock, 6);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("no line can be written: committing step 3, to end there"));
  EXPECT_THAT(ended.last_error_line(), AllOf(HasSubstr(lines), HasSubstr("No space left on device")));
  fs::rename(file("lines"), lines);
  const Ended more = train_by(now_ns, 4, OpenMode::kResume);
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, HasSubstr("resuming after step 3"));
}

}  // namespace
}  // namespace sluice
