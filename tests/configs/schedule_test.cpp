// The learning rates of DeepSpeed 0.19.5's schedulers. The tables are what its deepspeed/runtime/lr_schedules.py, run
// by itself on a torch.optim.SGD with the rate `lr`, left in the optimizer before each step.
#include "configs/schedule.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "configs/run_config.h"

namespace sluice {
namespace {

RunConfig with_scheduler(double lr, const std::string& scheduler) {
  const std::vector<std::string> overrides{"optimizer.type=Lion", "optimizer.params.lr=" + std::to_string(lr),
                                           "scheduler=" + scheduler};
  return parse_config(R"({"model": {}, "data": {"sequence_length": 8}, "train_batch_size": 1})", "run.json", overrides);
}

struct Table {
  double lr;
  std::string scheduler;
  std::vector<double> rates;
};

const Table kTables[] = {
    {0.5,
     R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.5, "warmup_num_steps": 4}})",
     {0.1, 0.1, 0.30000000000000004, 0.4169925001442313, 0.5, 0.5, 0.5, 0.5}},
    {0.5,
     R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.5, "warmup_num_steps": 4,
         "warmup_type": "linear"}})",
     {0.1, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5, 0.5, 0.5}},
    {0.25,
     R"({"type": "WarmupLR", "params": {"warmup_num_steps": 4}})",
     {0, 0, 0.125, 0.19812031259014454, 0.25, 0.25, 0.25, 0.25}},
    {0.25,
     R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_num_steps": 1}})",
     {0.1, 0.1, 0.25, 0.25, 0.25}},
    {0.25,
     R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_num_steps": 0}})",
     {0.1, 0.1, 0.25, 0.25, 0.25}},
    {0.25,
     R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_num_steps": 1, "warmup_type": "linear"}})",
     {0.1, 0.1, 0.175, 0.25, 0.25}},
    {9,
     R"({"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.5, "warmup_num_steps": 4,
         "total_num_steps": 12}})",
     {0.1, 0.1, 0.30000000000000004, 0.4169925001442313, 0.5, 0.5, 0.45000000000000007, 0.4, 0.35, 0.30000000000000004,
      0.25, 0.2, 0.15000000000000002, 0.1, 0.1}},
    {9,
     R"({"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.5, "warmup_num_steps": 4,
         "total_num_steps": 12, "warmup_type": "linear"}})",
     {0.1, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5, 0.45000000000000007, 0.4, 0.35, 0.30000000000000004, 0.25, 0.2,
      0.15000000000000002, 0.1, 0.1}},
    {9,
     R"({"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": 4}})",
     {0, 0, 0.001, 0.001, 0.0005, 0}},
    {0.5,
     R"({"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "warmup_num_steps": 4, "total_num_steps": 12,
         "cos_min_ratio": 0.2}})",
     {0, 0.05, 0.275, 0.40661656266226015, 0.5, 0.4847759065022573, 0.4414213562373095, 0.37653668647301797,
      0.30000000000000004, 0.22346331352698207, 0.1585786437626905, 0.11522409349774265, 0.1, 0.1, 0.1}},
    {0.5,
     R"({"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "warmup_num_steps": 4, "total_num_steps": 12,
         "cos_min_ratio": 0.2, "warmup_type": "linear"}})",
     {0, 0.05, 0.1625, 0.275, 0.3875, 0.4847759065022573, 0.4414213562373095, 0.37653668647301797, 0.30000000000000004,
      0.22346331352698207, 0.1585786437626905, 0.11522409349774265, 0.1, 0.1, 0.1}},
    {0.5,
     R"({"type": "WarmupCosineLR", "params": {"warmup_num_steps": 2, "total_num_steps": 4}})",
     {0, 0, 0.5, 0.250025, 5e-05, 5e-05, 5e-05, 5e-05}},
};

TEST(Schedule, has_deepspeeds_rate_at_every_applied_step) {
  for (const Table& each : kTables) {
    const RunConfig config = with_scheduler(each.lr, each.scheduler);
    for (size_t applied = 0; applied < each.rates.size(); ++applied) {
      const auto steps = static_cast<int64_t>(applied);
      EXPECT_NEAR(learning_rate_at(config.schedule, config.optimizer.learning_rate, steps), each.rates[applied], 1e-15)
          << each.scheduler << ", applied " << applied;
    }
  }
}

TEST(Schedule, reads_back_as_it_was_written) {
  for (const Table& each : kTables) {
    const RunConfig config = with_scheduler(each.lr, each.scheduler),
                    again = parse_config(to_json(config), "again", {});
    EXPECT_EQ(again.schedule, config.schedule) << each.scheduler;
    EXPECT_EQ(again.optimizer.learning_rate, config.optimizer.learning_rate) << each.scheduler;
    EXPECT_THAT(again.notes, testing::IsEmpty()) << each.scheduler;
  }
}

TEST(Schedule, a_decay_of_one_step_has_a_step_at_the_largest_rate_and_then_none) {
  const RunConfig config =
      with_scheduler(9, R"({"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": 3}})");
  const double rates[] = {0, 0, 0.001, 0.001, 0, 0};
  for (int64_t applied = 0; applied < std::ssize(rates); ++applied) {
    EXPECT_NEAR(learning_rate_at(config.schedule, 9, applied), rates[applied], 1e-15) << applied;
  }
}

// The rates of the first twelve steps and of the one without a place are the schedule's own.
TEST(Schedule, that_ends_before_the_run_does_tells_the_rate_of_all_further_steps) {
  const auto rate_after = [](const std::string& scheduler, int64_t steps) {
    const RunConfig config = with_scheduler(0.5, scheduler);
    return rate_after_end(config.schedule, config.optimizer.learning_rate, steps);
  };
  const std::string ends = R"({"warmup_num_steps": 4, "total_num_steps": 12)",
                    decay = R"({"type": "WarmupDecayLR", "params": )" + ends + R"(, "warmup_min_lr": 0.125}})",
                    cosine = R"({"type": "WarmupCosineLR", "params": )" + ends + R"(, "cos_min_ratio": 0.25}})";
  for (const std::string& scheduler : {decay, cosine}) {
    EXPECT_EQ(rate_after(scheduler, 12), std::nullopt);
    EXPECT_EQ(rate_after(scheduler, 13), std::nullopt);
    EXPECT_NEAR(rate_after(scheduler, 14).value_or(-1), 0.125, 1e-15) << scheduler;
  }
  EXPECT_EQ(rate_after(R"({"type": "WarmupLR", "params": {"warmup_num_steps": 4}})", 1000), std::nullopt);
  const std::string endless = R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9223372036854775807}})";
  EXPECT_EQ(rate_after(endless, 1000), std::nullopt);
  EXPECT_EQ(rate_after("{}", 1000), std::nullopt);
}

TEST(Schedule, sets_the_rate_of_every_group_too) {
  const std::vector<std::string> overrides{R"(optimizer.param_groups=[{"params": ["*"]}])",
                                           R"(scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": 0.25}})"};
  const RunConfig config =
      parse_config(R"({"model": {}, "data": {"sequence_length": 8}, "train_batch_size": 1})", "run.json", overrides);
  ASSERT_EQ(config.param_groups.size(), 1u);
  EXPECT_EQ(config.param_groups[0].optimizer.learning_rate, 0.25);
}

TEST(Schedule, without_one_the_rate_is_constant) { EXPECT_EQ(learning_rate_at({}, 9, 7), 9); }

// WarmupLR and WarmupCosineLR rise to the optimizer's rate; WarmupDecayLR has a default of its own.
TEST(Schedule, says_where_the_optimizers_rate_does_not_count) {
  const auto notes = [](const std::string& scheduler) { return with_scheduler(0.5, scheduler).notes; };
  const std::string not_needed =
      "not needed: \"optimizer.params.lr\" 0.5: a scheduler's rate is \"scheduler.params.warmup_max_lr\", here ";
  EXPECT_THAT(notes(R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.25}})"),
              testing::ElementsAre(testing::StartsWith(not_needed + "0.25")));
  EXPECT_THAT(notes(R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 2000}})"),
              testing::ElementsAre(testing::StartsWith(not_needed + "0.001")));
  EXPECT_THAT(notes(R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.5}})"), testing::IsEmpty());
  EXPECT_THAT(notes(R"({"type": "WarmupLR"})"), testing::IsEmpty());
  EXPECT_THAT(notes(R"({"type": "WarmupCosineLR", "params": {"total_num_steps": 2000}})"), testing::IsEmpty());
}

// DeepSpeed's WarmupLR takes the optimizer's rate for None.
TEST(Schedule, a_largest_rate_of_null_is_the_optimizers) {
  const auto max_lr = [](const std::string& scheduler) { return with_scheduler(0.5, scheduler).schedule.max_lr; };
  EXPECT_EQ(max_lr(R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 2000, "warmup_max_lr": null}})"), 0.5);
  EXPECT_EQ(max_lr(R"({"type": "WarmupLR", "params": {"warmup_max_lr": null}})"), 0.5);
}

TEST(Schedule, that_is_empty_is_none) { EXPECT_EQ(with_scheduler(0.5, "{}").schedule.kind, ScheduleKind::kConstant); }

TEST(Schedule, auto_is_the_rate_of_whatever_optimizer_it_is) {
  for (const std::string rest : {"", R"(, "total_num_steps": 2000)"}) {
    const std::string type = rest.empty() ? "WarmupLR" : "WarmupDecayLR";
    const RunConfig config = parse_config(
        R"({"model": {}, "data": {"sequence_length": 32}, "train_batch_size": 1, "optimizer": {"type": "Adagrad"},
            "scheduler": {"type": ")" +
            type + R"(", "params": {"warmup_max_lr": "auto")" + rest + "}}}",
        "run.json", {});
    EXPECT_EQ(config.schedule.max_lr, 1e-2) << type;
    EXPECT_EQ(config.optimizer.learning_rate, 1e-2) << type;
    EXPECT_THAT(config.notes, testing::Contains("\"scheduler.params.warmup_max_lr\" \"auto\": 0.01 is taken, the "
                                                "optimizer's rate"));
  }
}

}  // namespace
}  // namespace sluice
