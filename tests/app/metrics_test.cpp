// metrics.jsonl over interruptions, and the choice of a token.
#include "app/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "app/console.h"
#include "app/sample.h"
#include "core/bytes.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/mounted_drive.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  TempFolder folder_;
  std::string said_;
  const Log log_ = [this](LogLevel, std::string_view words) { said_ += words; };
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
};

const std::string kOne = "{\"step\":1,\"loss\":3.5}\n", kTwo = "{\"step\":2,\"loss\":2.5}\n";

TEST_F(MetricsTest, lines_after_the_committed_step_are_dropped) {
  write(kOne + kTwo + "{\"step\":3,\"loss\":1.5}\n");
  const MetricsFile metrics(path_, 2, log_);
  EXPECT_EQ(read(), kOne + kTwo);
  EXPECT_EQ(metrics.first_loss(), 3.5);
  EXPECT_EQ(metrics.last_loss(), 2.5);
}

TEST_F(MetricsTest, a_torn_last_line_is_dropped) {
  for (const std::string torn : {"{\"step\":2,\"lo", "{\"step\":2,\"loss\":2.5}", "{", "\n"}) {
    write(kOne + torn);
    const MetricsFile metrics(path_, 2, log_);
    EXPECT_EQ(read(), kOne) << torn;
  }
}

TEST_F(MetricsTest, a_damaged_line_takes_no_others_with_it_and_is_told_of) {
  for (const std::string damaged : {"\xff\xfe{}\n", "{\"step\":\"2\"}\n", "[14:35:37] step 1/10\n", "\n"}) {
    write(kOne + damaged + kTwo);
    const MetricsFile metrics(path_, 2, log_);
    EXPECT_EQ(read(), kOne + kTwo) << damaged;
    EXPECT_NE(said_.find("has lines of 2 of the 2 steps so far; 1 that are damaged are dropped"), std::string::npos)
        << said_;
    said_.clear();
  }
}

TEST_F(MetricsTest, lines_that_are_missing_are_told_of) {
  write(kOne);
  const MetricsFile metrics(path_, 3, log_);
  EXPECT_EQ(read(), kOne);
  EXPECT_NE(said_.find("has lines of 1 of the 3 steps so far"), std::string::npos) << said_;
}

TEST_F(MetricsTest, that_are_gone_are_told_of) {
  { const MetricsFile begun(path_, 0, log_); }
  EXPECT_EQ(said_, "");
  std::filesystem::remove(path_);
  const MetricsFile metrics(path_, 3, log_);
  EXPECT_NE(said_.find("metrics.jsonl is not there: nothing is known of the 3 steps so far"), std::string::npos)
      << said_;
}

TEST_F(MetricsTest, a_final_line_is_dropped) {
  write(kOne + kTwo + "{\"final\":true}\n");
  const MetricsFile metrics(path_, 2, log_);
  EXPECT_EQ(read(), kOne + kTwo);
}

TEST_F(MetricsTest, a_run_that_starts_anew_has_no_lines) {
  write(kOne + kTwo);
  const MetricsFile metrics(path_, 0, log_);
  EXPECT_EQ(read(), "");
  EXPECT_FALSE(metrics.first_loss());
}

TEST_F(MetricsTest, a_step_reads_back_with_every_digit) {
  MetricsFile metrics(path_, 0, log_);
  StepMetrics step;
  step.end = {.step = 1, .loss = 0.1 + 0.2, .grad_norm = std::nan("")};
  metrics.step(step, Ledger());
  EXPECT_NE(read().find("\"loss\":0.30000000000000004,"), std::string::npos) << read();
  EXPECT_NE(read().find("\"grad_norm\":null,"), std::string::npos) << read();
}

// Each with its own words in docs/run_folder.md.
void expect_documented(const nlohmann::json& line, const std::string& page) {
  for (const auto& [key, value] : line.items()) {
    EXPECT_NE(page.find('`' + key + '`'), std::string::npos) << key;
    if (value.is_object()) expect_documented(value, page);
  }
}

TEST_F(MetricsTest, every_key_is_documented) {
  const std::string page = read_whole(SLUICE_RUN_FOLDER_PAGE);
  ASSERT_FALSE(page.empty());
  MetricsFile metrics(path_, 0, log_);
  StepMetrics step;
  step.end.step = 1;
  step.predicted = Prediction{};
  metrics.step(step, Ledger());
  metrics.final_line({}, Validation{});
  std::istringstream lines(read());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) expect_documented(nlohmann::json::parse(line), page);
  EXPECT_EQ(count, 2);
}

// Its line was given room before it began.
TEST_F(MetricsTest, a_step_that_has_begun_has_its_line_on_a_drive_that_has_become_full) {
  MountedDrive drive(MountedDrive::Kind::kMemory, folder_.path() / "drive", 64 * kKiB);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  path_ = drive.path() / "metrics.jsonl";
  MetricsFile metrics(path_, 0, log_);
  metrics.make_room();  // less than it would have
  std::ofstream fill(drive.path() / "fill");
  while (fill << std::string(4096, 'x') << std::flush) continue;
  int steps = 0;
  const std::string refused = message_of<IoError>([&] {
    for (; steps < 100; ++steps) {
      metrics.make_room();
      metrics.step({.end = {.step = steps + 1}}, Ledger());
    }
  });
  EXPECT_NE(refused.find(path_.string()), std::string::npos) << refused;
  EXPECT_NE(refused.find("No space left"), std::string::npos) << refused;
  EXPECT_NE(refused.find("--resume"), std::string::npos) << refused;
  const std::string lines = read();
  EXPECT_GT(steps, 0);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), steps);
  metrics.final_line({}, {});
  EXPECT_NE(read().find("\"final\""), std::string::npos) << "that of the last step";
}

TEST_F(MetricsTest, room_is_kept_ahead_of_the_lines_and_given_back_at_the_end) {
  const auto room = [this] {
    struct stat file {};
    EXPECT_EQ(stat(path_.c_str(), &file), 0);
    EXPECT_EQ(read().size(), static_cast<size_t>(file.st_size)) << "the file is no longer than its lines";
    return file.st_blocks * 512 - file.st_size;
  };
  std::optional<MetricsFile> metrics(std::in_place, path_, 0, log_);
  metrics->make_room();
  metrics->step({.end = {.step = 1}}, Ledger());
  if (room() <= 4096) GTEST_SKIP() << "this file system reserves nothing";
  for (int64_t step = 2; step < 100; ++step) {
    metrics->make_room();
    EXPECT_GE(room(), 64 * kKiB) << step;
    metrics->step({.end = {.step = step}}, Ledger());
  }
  std::filesystem::resize_file(path_, 0);  // as by who rotates it
  metrics->make_room();
  EXPECT_GE(room(), 64 * kKiB);
  metrics.reset();
  EXPECT_EQ(room(), 0);
}

TEST_F(MetricsTest, a_file_system_that_reserves_nothing_is_gone_on_without) {
  MountedDrive drive(MountedDrive::Kind::kRam, folder_.path() / "drive", 0);
  if (!drive.reason().empty()) GTEST_SKIP() << drive.reason();
  path_ = drive.path() / "metrics.jsonl";
  MetricsFile metrics(path_, 0, log_);
  metrics.make_room();
  metrics.step({.end = {.step = 1}}, Ledger());
  EXPECT_NE(read().find("\"step\":1,"), std::string::npos);
}

TEST_F(MetricsTest, lines_go_to_the_file_that_has_the_name) {
  const auto step_into = [](MetricsFile& metrics, int64_t step) {
    metrics.make_room();
    metrics.step({.end = {.step = step}}, Ledger());
  };
  MetricsFile metrics(path_, 0, log_);
  step_into(metrics, 1);
  step_into(metrics, 2);
  EXPECT_EQ(said_, "");
  std::filesystem::remove(path_);
  step_into(metrics, 3);
  EXPECT_EQ(read().find("{\"step\":3,"), 0u);
  EXPECT_NE(said_.find("metrics.jsonl was moved, removed or replaced"), std::string::npos) << said_;
  std::ofstream(path_.string() + ".edited") << kOne;
  std::filesystem::rename(path_.string() + ".edited", path_);
  step_into(metrics, 4);
  EXPECT_EQ(read().find(kOne + "{\"step\":4,"), 0u);
  std::filesystem::remove(path_);
  std::ofstream(path_) << "as an editor left it";
  step_into(metrics, 5);
  EXPECT_EQ(read().find("as an editor left it\n{\"step\":5,"), 0u);
}

TEST_F(MetricsTest, whose_folder_is_gone_refuse_the_next_step) {
  path_ = folder_.path() / "run" / "metrics.jsonl";
  std::filesystem::create_directory(path_.parent_path());
  MetricsFile metrics(path_, 0, log_);
  std::filesystem::remove_all(path_.parent_path());
  EXPECT_NE(message_of<IoError>([&] { metrics.make_room(); }).find(path_.string()), std::string::npos);
}

TEST(PickToken, follows_the_distribution_at_its_temperature) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f)};  // 1/8, 2/8, 5/8
  EXPECT_EQ(pick_token(logits, 1, 0.0), 0);
  EXPECT_EQ(pick_token(logits, 1, 0.124), 0);
  EXPECT_EQ(pick_token(logits, 1, 0.126), 1);
  EXPECT_EQ(pick_token(logits, 1, 0.374), 1);
  EXPECT_EQ(pick_token(logits, 1, 0.376), 2);
  EXPECT_EQ(pick_token(logits, 1, 0.999999), 2);
  EXPECT_EQ(pick_token(logits, 0.01, 0.001), 2);
  EXPECT_EQ(pick_token(logits, 0, 0.0), 2);
}

TEST(PickToken, very_large_logits_do_not_overflow) {
  EXPECT_EQ(pick_token(std::vector<float>{1000.0f, 3000.0f, 2000.0f}, 1, 0.5), 1);
}

TEST(PickToken, picks_none_where_a_logit_is_no_number) {
  for (const double temperature : {0.0, 1.0}) {
    const std::vector<float> logits = {std::nanf(""), 3.0f, 2.0f};
    EXPECT_NE(message_of<NumericsError>([&] { pick_token(logits, temperature, 0.5); }).find("not all finite"),
              std::string::npos);
  }
}

TEST(ProgressRow, fits_the_terminal) {
  EXPECT_EQ(one_row("[##..] ", "50%  step 1/2", 21), "[##..] 50%  step 1/2");
  EXPECT_EQ(one_row("[##..] ", "50%  step 1/2", 20), "50%  step 1/2") << "the last column stays free";
  EXPECT_EQ(one_row("[##..] ", "50%  step 1/2", 8), "50%  st");
}

TEST(FormatDuration, has_hours_only_where_there_are_some) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(247.4), "4:07");
  EXPECT_EQ(format_duration(3909), "1:05:09");
}

TEST(DurationBeside, a_number_says_its_unit_and_nothing_below_a_minute) {
  EXPECT_EQ(duration_beside(59.9), "");
  EXPECT_EQ(duration_beside(60), " (1:00 min)");
  EXPECT_EQ(duration_beside(247.4), " (4:07 min)");
  EXPECT_EQ(duration_beside(3599.6), " (1:00:00 h)");
  EXPECT_EQ(duration_beside(3909), " (1:05:09 h)");
}

}  // namespace
}  // namespace sluice
