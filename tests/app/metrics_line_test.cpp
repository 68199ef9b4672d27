// Each number of a step and of a run's end stands under its own name: in metrics.jsonl, in the log, in the summary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/metrics.h"
#include "app/report.h"
#include "core/bytes.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::Not;

// No two numbers are the same.
StepMetrics step_of_numbers() {
  StepMetrics step{.end = {.step = 7, .loss = 2.5, .grad_norm = 0.75, .loss_scale = 1024},
                   .learning_rate = 0.001,
                   .tokens = 700,
                   .samples_per_s = 8,
                   .tokens_per_s = 2e9,
                   .step_ms = 50};
  step.lanes.drive_busy_ms = 33;
  step.predicted = Prediction{.step_ms = 40};
  for (size_t lane = 0; lane < step.lanes.uses.size(); ++lane) {
    LaneUse& use = step.lanes.uses[lane];
    const auto number = static_cast<int64_t>(lane) + 1;
    use.busy_ms = static_cast<double>(number);
    use.bytes = 100 * number;
    for (size_t group = 0; group < use.group_bytes.size(); ++group)
      use.group_bytes[group] = 1000 * number + static_cast<int64_t>(group);
    step.predicted->busy_ms[lane] = static_cast<double>(number) + 0.5;
  }
  return step;
}

class LinesOfMetrics : public testing::Test {
 protected:
  LinesOfMetrics() {
    ledger_.set_budget(Tier::kDevice, 4 * kMiB);
    ledger_.set_budget(Tier::kHost, 64 * kMiB);
    ledger_.charge(Tier::kDevice, "weights", 3 * kMiB);
    ledger_.charge(Tier::kHost, "state", 16 * kMiB);
    ledger_.charge(Tier::kNvme, "records", 128 * kMiB);
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      const std::string_view use = tier == Tier::kDevice ? "weights" : tier == Tier::kHost ? "state" : "records";
      ledger_.release(tier, use, 2 * kMiB);  // what is there now is less than the peak
    }
  }
  std::vector<nlohmann::json> lines() const {
    std::istringstream text(read_whole(path_));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
  Ledger ledger_;
};

TEST_F(LinesOfMetrics, have_each_number_of_a_step_under_its_name) {
  std::ofstream(path_) << "{\"step\":6,\"loss\":3.5}\n";
  {
    MetricsFile metrics(path_, 6, {});
    metrics.step(step_of_numbers(), ledger_);
    EXPECT_EQ(metrics.first_loss(), 3.5);
    EXPECT_EQ(metrics.last_loss(), 2.5);
  }
  const nlohmann::json line = lines().at(1);
  EXPECT_EQ(line["step"], 7);
  EXPECT_EQ(line["since_start"], 1) << "of this process";
  EXPECT_EQ(line["lr"], 0.001);
  EXPECT_EQ(line["loss_scale"], 1024);
  EXPECT_EQ(line["tokens"], 700);
  EXPECT_EQ(line["step_ms"], 50);
  EXPECT_EQ(line["drive_ms"], 33);
  EXPECT_EQ(line["predicted_step_ms"], 40);
  const nlohmann::json& write = line["lanes"]["write"];
  const auto lane = static_cast<double>(Lane::kWrite) + 1;
  EXPECT_EQ(write["ms"], lane);
  EXPECT_EQ(write["bytes"], 100 * lane);
  EXPECT_EQ(write["predicted_ms"], lane + 0.5);
  EXPECT_EQ(write["state_bytes"], 1000 * lane + static_cast<int>(Group::kState));
  EXPECT_EQ(write["weights_bytes"], 1000 * lane + static_cast<int>(Group::kWeights));
  const nlohmann::json& memory = line["memory"];
  EXPECT_EQ(memory["host"]["budget_bytes"], 64 * kMiB);
  EXPECT_EQ(memory["host"]["peak_bytes"], 16 * kMiB);
  EXPECT_EQ(memory["nvme"]["budget_bytes"], nullptr) << "there is none";
  EXPECT_EQ(memory["nvme"]["peak_bytes"], 128 * kMiB);
}

TEST_F(LinesOfMetrics, have_each_number_of_the_end_under_its_name) {
  MetricsFile(path_, 0, {})
      .final_line({.weights_crc32c = 0x12ab, .state_crc32c = 0x34cd},
                  Validation{.loss = 4.5, .unigram_nats = 5.25, .tokens = 4096});
  EXPECT_EQ(lines().at(0), nlohmann::json({{"final", true},
                                           {"weights_crc32c", "000012ab"},
                                           {"state_crc32c", "000034cd"},
                                           {"validation_loss", 4.5},
                                           {"validation_tokens", 4096},
                                           {"unigram_nats", 5.25}}));
}

TEST_F(LinesOfMetrics, of_a_long_run_are_kept_once_each) {
  std::string kept;
  for (int step = 1; kept.size() < size_t{2} << 20; ++step)
    kept += "{\"step\":" + std::to_string(step) + ",\"words\":\"" + std::string(60'000, 'x') + "\"}\n";
  std::ofstream(path_) << kept << "{\"final\":true}\n";
  { const MetricsFile metrics(path_, 1000, {}); }
  EXPECT_TRUE(read_whole(path_) == kept);
}

TEST_F(LinesOfMetrics, resident_bytes_beside_a_gpu_are_the_hosts_and_the_runtimes) {
  EXPECT_EQ(runtime_bytes(100, 40, 30, DeviceKind::kHost), 30);
  EXPECT_EQ(runtime_bytes(100, 40, 30, DeviceKind::kCuda), 70);
  EXPECT_EQ(runtime_bytes(50, 40, 30, DeviceKind::kHost), 0);
}

TEST_F(LinesOfMetrics, in_the_log_say_what_each_number_is) {
  const StepMetrics step = step_of_numbers();
  const StepContext context{.steps = 9, .average_samples_per_s = 6.5, .flops_per_token = 3e3};
  const std::string line = step_line(step, context, ledger_);
  EXPECT_THAT(
      line,
      HasSubstr(
          "step 7/9  loss 2.5000  lr 0.001  grad_norm 0.7500  loss_scale 1024  samples/s 6.50 (now 8.00)  tokens/s "
          "2000000000  TFLOP/s 6.000  device 1.0 MiB (peak 3.0 MiB)  host 14.0 MiB (peak 16.0 MiB)  nvme 126.0 MiB "
          "(peak "
          "128.0 MiB)  50 ms, busiest: nvme 33 of 50 ms"));
  EXPECT_THAT(line, Not(HasSubstr("SKIPPED")));
}

TEST_F(LinesOfMetrics, in_the_summary_say_what_each_number_is) {
  RunSummary run{.steps = 9,
                 .steps_here = 2,
                 .first_loss = 3.5,
                 .last_loss = 2.5,
                 .validation = Validation{.loss = 5.5, .unigram_nats = 5.25, .tokens = 4096},
                 .seconds = 61,
                 .workspace_bytes = 8 * kMiB,
                 .workspace_peak_bytes = 5 * kMiB,
                 .endurance = "",
                 .digests = {.weights_crc32c = 0x12ab, .state_crc32c = 0x34cd},
                 .folder = "runs/small"};
  const std::string text = summary(run, ledger_);
  for (const char* words : {"9 steps; of them 2 in this process, 1:01 of training", "first 3.5000, last 2.5000",
                            "5.5000, unigram cross-entropy of the same 4096 tokens 5.2500: 0.2500 nat above it",
                            "device  peak      3.0 MiB (3145728 bytes) of 4.0 MiB (4194304 bytes)",
                            "host    peak      16.0 MiB (16777216 bytes) of 64.0 MiB (67108864 bytes)",
                            "nvme    peak      128.0 MiB (134217728 bytes)", "workspace peak    5.0 MiB of 8.0 MiB",
                            "digests           weights 000012ab, state 000034cd"})
    EXPECT_THAT(text, HasSubstr(words));
  run.validation->loss = 5;
  EXPECT_THAT(summary(run, ledger_), HasSubstr("0.2500 nat below it"));
  run.validation->loss = std::nan("");
  EXPECT_THAT(summary(run, ledger_), HasSubstr("validation loss   nan: no number\n"));
}

// Reads and writes that are under way at once take no longer than the step.
TEST(BusyOfGroups, drives_of_which_nothing_is_known_are_busy_for_the_step_at_the_most) {
  BusyTimes busy;
  busy.lanes_ms[static_cast<size_t>(Lane::kRead)] = 30;
  busy.lanes_ms[static_cast<size_t>(Lane::kWrite)] = 25;
  const auto drive_ms = [&](double step_ms) {
    return busy_of_groups(busy, step_ms)[static_cast<size_t>(LaneGroup::kNvme)];
  };
  EXPECT_EQ(drive_ms(100), 55);
  EXPECT_EQ(drive_ms(40), 40);
  busy.drive_ms = 35;
  EXPECT_EQ(drive_ms(100), 35);
}

}  // namespace
}  // namespace sluice
