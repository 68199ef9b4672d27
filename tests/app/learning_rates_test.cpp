// That a run trains at its schedule's rates, step by step, and after an interruption goes on with the next one.
#include "tests/app/command_fixture.h"

namespace sluice {
namespace {

struct Scheduled {
  std::string name, scheduler;
  std::vector<double> rates;  // of 1e-3, worked out by hand from the formulas in configs/schedule.h
};

class LearningRates : public CommandTest, public testing::WithParamInterface<Scheduled> {};

TEST_P(LearningRates, of_a_run_that_is_resumed_are_the_schedules) {
  const auto until = [&](const std::string& steps, const std::string& mode) {
    const Ended ended = train("run", {"--set", "scheduler=" + GetParam().scheduler, "--steps", steps, mode});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  };
  until("3", "--overwrite");
  until("6", "--resume");
  const std::vector<Json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 7u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(lines[i]["lr"].get<double>(), 1e-3 * GetParam().rates[i], 1e-12) << "step " << i + 1;
  }
}

// The first scales are too large for fp16: those steps are skipped, and the next one has their rate.
class SkippedSteps : public CommandTest {};

TEST_F(SkippedSteps, take_no_rate_of_the_schedule) {
  const Ended ended = train(
      "run", {"--set", "bf16.enabled=false", "--set", R"(fp16={"enabled": true, "initial_scale_power": 30})", "--set",
              R"(scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 100,
                        "warmup_type": "linear"}})",
              "--steps", "20"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  int applied = 0, skipped = 0;
  for (const Json& line : metrics("run")) {
    if (!line.contains("lr")) continue;
    EXPECT_NEAR(line["lr"].get<double>(), 1e-3 * std::max(0, applied - 1) / 100, 1e-12) << "step " << line["step"];
    ++(line["skipped"].get<bool>() ? skipped : applied);
  }
  EXPECT_GT(applied, 2);
  EXPECT_GT(skipped, 0);
}

class EndedSchedule : public CommandTest {};

TEST_F(EndedSchedule, is_warned_of_where_steps_are_left) {
  for (const std::string steps : {"7", "8"}) {
    const Ended ended = train("run", {"--set",
                                      R"(scheduler={"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-3,
                        "warmup_num_steps": 2, "total_num_steps": 6}})",
                                      "--steps", steps, "--overwrite"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const std::vector<Json> lines = metrics("run");
    const bool is_over = ended.err.find(
                             "total_num_steps is 6 and the run has 8 steps: after the schedule's end the "
                             "learning rate is 0;") != std::string::npos;
    EXPECT_EQ(is_over, steps == "8") << ended.err;
    EXPECT_EQ(lines[std::stoul(steps) - 1]["lr"].get<double>() == 0, is_over);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, LearningRates,
    testing::Values(Scheduled{"warm_up_by_the_logarithm",
                              R"({"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 4}})",
                              {0, 0, 0.5, 0.79248125036, 1, 1}},
                    Scheduled{"warm_up_and_decay",
                              R"({"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 2,
                      "warmup_type": "linear", "total_num_steps": 6}})",
                              {0, 0, 0.5, 1, 0.75, 0.5}},
                    Scheduled{"warm_up_and_cosine",
                              R"({"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "warmup_num_steps": 2,
                      "warmup_type": "linear", "cos_min_ratio": 0.01, "total_num_steps": 6}})",
                              {0, 0.1, 0.55, 0.855017856688, 0.505, 0.154982143312}}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace sluice
