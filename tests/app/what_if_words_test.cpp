#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/report_page.h"
#include "app/run_data.h"
#include "app/what_if.h"

namespace sluice {
namespace {

TEST(WouldHelpWords, name_what_is_no_help_apart_from_what_is) {
  const Resources twice{.device_bytes = 2048, .host_bytes = 4096, .drives = 1, .micro_batches = 2};
  const std::vector<Offer> offers = {
      {.raised = Offer::Raised::kDrives, .resources = twice, .step_ms = 50},
      {.raised = Offer::Raised::kHostMemory, .resources = twice, .step_ms = 99.9},  // not worth saying
      {.raised = Offer::Raised::kTokens, .resources = twice, .step_ms = {}}};
  const std::string text = would_help_words(offers, {.step_ms = 100, .tokens = 20}, 10);
  EXPECT_THAT(text, testing::ContainsRegex("one more drive: +100.0 -> 50.0 ms, 200 -> 400 tokens/s"));
  EXPECT_THAT(text, testing::ContainsRegex("2x tokens per step: +does not fit the budgets"));
  EXPECT_THAT(text, testing::ContainsRegex("no help: +\\+2.0 KiB host memory"));
}

// report_test.cpp has no such case; RunData as in run_data_test.cpp.
TEST(ReportPage, warns_of_offers_where_steps_took_much_less_than_predicted_as_where_they_took_more) {
  const auto warns = [](double step_ms) {
    RunData run;
    for (int64_t step = 1; step <= 6; ++step) {
      run.steps.push_back(
          {.step = step, .since_start = step, .step_ms = step_ms, .predicted_step_ms = 100, .lanes = {}});
    }
    const WouldHelp help{
        .step_ms = 100, .tokens_per_s = 10, .offers = {{.with = "one more drive", .step_ms = 90, .tokens_per_s = 11}}};
    return report_page(run, std::nullopt, help).find("as wrong as that") != std::string::npos;
  };
  EXPECT_TRUE(warns(140));
  EXPECT_TRUE(warns(60));
  EXPECT_FALSE(warns(110));
}

}  // namespace
}  // namespace sluice
