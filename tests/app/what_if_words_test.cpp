#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "app/report_page.h"
#include "app/run_data.h"
#include "app/run_timeline.h"
#include "app/what_if.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

TEST(WouldHelpWords, name_what_is_no_help_apart_from_what_is) {
  const Resources twice{.device_bytes = 2048, .host_bytes = 4096, .drives = 1, .micro_batches = 2};
  const std::vector<Offer> offers = {
      {.raised = Offer::Raised::kDrives, .resources = twice, .step_ms = 50},
      {.raised = Offer::Raised::kHostMemory, .resources = twice, .step_ms = 99.9},  // not worth saying
      {.raised = Offer::Raised::kDeviceMemory, .resources = twice, .step_ms = 90},
      {.raised = Offer::Raised::kTokens, .resources = twice, .step_ms = {}}};
  const std::string text = would_help_words(offers, {.step_ms = 100, .tokens = 20}, 10);
  EXPECT_THAT(text, testing::ContainsRegex("one more drive: +100.0 -> 50.0 ms, 200 -> 400 tokens/s"));
  EXPECT_THAT(text, testing::ContainsRegex("\\+1.0 KiB device memory: +100.0 -> 90.0 ms"));
  EXPECT_THAT(text, testing::ContainsRegex("2x tokens per step: +does not fit the budgets"));
  EXPECT_THAT(text, testing::ContainsRegex("no help: +\\+2.0 KiB host memory"));
}

TEST(StepTimesWords, are_in_seconds_where_either_step_is_long_and_have_the_digits_that_tell_them_apart) {
  EXPECT_EQ(step_times_words({.step_ms = 9000, .tokens = 9}, {.step_ms = 12000, .tokens = 24}),
            "9.0 -> 12.0 s, 1 -> 2 tokens/s");
  EXPECT_EQ(step_times_words({.step_ms = 5, .tokens = 5}, {.step_ms = 0.25, .tokens = 5}),
            "5.0 -> 0.25 ms, 1000 -> 20000 tokens/s");
}

constexpr Resources kPresent{.device_bytes = 2 * kGiB, .host_bytes = 8 * kGiB, .drives = 3, .micro_batches = 2};

Resources changed(const std::string& change) { return changed_resources(kPresent, std::array{change}, 99); }

TEST(WhatIf, takes_what_has_a_plus_beside_what_there_is) {
  EXPECT_EQ(changed("host_memory=+16GiB").host_bytes, 24 * kGiB);
  EXPECT_EQ(changed("host_memory=+8.0 MiB").host_bytes, 8 * kGiB + 8 * kMiB);  // as would help has it
  EXPECT_EQ(changed("device_memory = + 1GiB").device_bytes, 3 * kGiB);
  EXPECT_EQ(changed("host_memory=1EiB").host_bytes, kMostBudgetBytes);  // the most, as a refusal of more has it
  EXPECT_EQ(changed("drives=+1").drives, 4);
  EXPECT_EQ(changed("drives=16").drives, 16);
  EXPECT_EQ(changed("tokens_per_step=+99").micro_batches, 3);
  const Resources all = changed("host_memory=16GiB, drives=+2");
  EXPECT_EQ(all.host_bytes, 16 * kGiB);
  EXPECT_EQ(all.drives, 5);
  EXPECT_EQ(all.device_bytes, kPresent.device_bytes);
}

TEST(WhatIf, refuses_more_than_is_allowed_beside_what_there_is) {
  using testing::HasSubstr;
  for (const auto& [change, why] :
       {std::pair("drives=+14", "\"17\": allowed is a whole number from 1 to 16"),
        std::pair("drives=+0", "\"0\": allowed is a whole number"), std::pair("drives=++1", "\"+1\": allowed is"),
        std::pair("host_memory=+1048576TiB", "no more than 1.0 EiB"),
        std::pair("host_memory=1.1EiB", "\"1.1EiB\": allowed is more than 0 bytes, and no more than 1.0 EiB"),
        std::pair("device_memory=8EiB", "'8EiB' is more bytes than can be counted"),
        std::pair("host_memory=+-1GiB", "not a number of bytes"),
        std::pair("host_memory=0", "allowed is more than 0 bytes"),
        std::pair("tokens_per_step=+100", "a multiple of a micro-batch's 99 tokens")}) {
    EXPECT_THAT(message_of<ConfigError>([&] { changed(change); }),
                testing::AllOf(HasSubstr(std::string("--what-if ") + change + ": "), HasSubstr(why)));
  }
  EXPECT_EQ(message_of<ConfigError>([&] { changed("drives=1,drives=2"); }),
            "--what-if drives=2: allowed is each key once");
}

TEST(WhatIf, says_which_part_of_a_change_is_missing) {
  for (const auto& [change, said] :
       {std::pair("host_memory",
                  "--what-if host_memory: = and a value are missing: write for example host_memory=64GiB"),
        std::pair("host_memory=64GiB,drives",
                  "--what-if drives: = and a value are missing: write for example drives=2"),
        std::pair("device_memory=",
                  "--what-if device_memory=: a value is missing: write for example device_memory=8GiB"),
        std::pair("drives=+", "--what-if drives=+: a value is missing: write for example drives=2"),
        std::pair("tokens_per_step",
                  "--what-if tokens_per_step: = and a value are missing: write for example "
                  "tokens_per_step=396"),
        std::pair("memory",
                  "--what-if memory: allowed is host_memory, device_memory, drives or tokens_per_step, = and "
                  "a value"),
        std::pair("",
                  "--what-if is empty: allowed is host_memory, device_memory, drives or tokens_per_step, = and a "
                  "value"),
        std::pair("  ",
                  "--what-if is empty: allowed is host_memory, device_memory, drives or tokens_per_step, = and a "
                  "value")}) {
    EXPECT_EQ(message_of<ConfigError>([&] { changed(change); }), said);
  }
}

// The words of the JSON library are nobody's.
TEST(FilesOfARun, that_are_damaged_are_refused_with_what_to_do) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "kept.json";
  for (const char* text : {"[1]", "{", "{}", R"({"traceEvents": [{}], "step_ms": "fast"})", R"({"traceEvents": 5})"}) {
    std::ofstream(file) << text;
    for (const std::string& said : {message_of<ConfigError>([&] { static_cast<void>(read_timeline(file)); }),
                                    message_of<ConfigError>([&] { static_cast<void>(read_would_help(file)); })}) {
      EXPECT_THAT(said, testing::AllOf(testing::HasSubstr(file.string() + ": this is not "),
                                       testing::HasSubstr("a run writes there: remove it, or go on with the run"),
                                       testing::Not(testing::HasSubstr("exception"))))
          << text;
    }
  }
}

RunData run_with(double step_ms, std::optional<double> predicted_ms) {
  RunData run;
  for (int64_t step = 1; step <= 6; ++step) {
    run.steps.push_back(
        {.step = step, .since_start = step, .step_ms = step_ms, .predicted_step_ms = predicted_ms, .lanes = {}});
  }
  return run;
}

// Three times of a step stand side by side.
TEST(ReportPage, says_of_each_time_of_a_step_what_it_is) {
  using testing::HasSubstr;
  const WouldHelp help{.step_ms = 110, .tokens_per_s = 10, .offers = {}};
  EXPECT_THAT(
      report_page(run_with(202, 164), std::nullopt, help),
      testing::AllOf(HasSubstr("<span>a step, measured</span><b>202 ms</b><small>median of the last start; predicted "
                               "for steps as they ran: 164 ms</small>"),
                     HasSubstr("<th>what there is, predicted</th>"), HasSubstr("<th>a step, predicted</th>"),
                     HasSubstr("110 ms is predicted for steps as this plan usually runs them, 164 ms as they ran"),
                     testing::Not(HasSubstr("planned"))));
  EXPECT_THAT(report_page(run_with(202, 110), std::nullopt, help), testing::Not(HasSubstr("usually runs them")));
  EXPECT_THAT(report_page(run_with(202, std::nullopt), std::nullopt, std::nullopt),
              HasSubstr("<b>202 ms</b><small>median of the last start</small>"));
}

TEST(ReportPage, shows_the_validation_loss_beside_the_unigram_cross_entropy) {
  using testing::HasSubstr;
  RunData run = run_with(100, std::nullopt);
  EXPECT_THAT(report_page(run, std::nullopt, std::nullopt), testing::Not(HasSubstr("validation loss")));
  run.validation = {.loss = 4.66471, .unigram_nats = 5.50432, .tokens = 16384};
  EXPECT_THAT(report_page(run, std::nullopt, std::nullopt),
              HasSubstr("<span>validation loss</span><b>4.6647 nats</b><small>unigram cross-entropy of the same 16384 "
                        "tokens 5.5043 nats</small>"));
  run.validation->loss.reset();
  EXPECT_THAT(report_page(run, std::nullopt, std::nullopt), HasSubstr("<span>validation loss</span><b>not finite</b>"));
}

// report_test.cpp has no such case; RunData as in run_data_test.cpp.
TEST(ReportPage, warns_of_offers_where_steps_took_much_less_than_predicted_as_where_they_took_more) {
  const auto warns = [](double step_ms) {
    const WouldHelp help{
        .step_ms = 100, .tokens_per_s = 10, .offers = {{.with = "one more drive", .step_ms = 90, .tokens_per_s = 11}}};
    return report_page(run_with(step_ms, 100), std::nullopt, help).find("as wrong as that") != std::string::npos;
  };
  EXPECT_TRUE(warns(140));
  EXPECT_TRUE(warns(60));
  EXPECT_FALSE(warns(110));
}

}  // namespace
}  // namespace sluice
