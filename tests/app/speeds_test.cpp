// How a prediction is told, to people and to programs, and what it starts from where nothing is measured.
#include "app/speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Prediction of_slow_drives() {
  Prediction prediction;
  prediction.step_ms = 1000;
  prediction.alone_ms = {900, 0.25, 2, 300};
  for (int lane = 0; lane < kLaneCount; ++lane) prediction.busy_ms[static_cast<size_t>(lane)] = lane + 1;
  prediction.binding = LaneGroup::kNvme;
  prediction.critical_micro_batches = 3.499;
  return prediction;
}

TEST(PredictionWords, have_every_time_in_its_digits_and_the_tokens_from_which_on_compute_binds) {
  Prediction prediction = of_slow_drives();
  const std::string first = "predicted    1000.0 ms a step; alone nvme 900.0, cpu 0.25, copies 2.0, compute 300.0 ms";
  const std::string critical = "compute binds where a step has more than 350 tokens\n";
  EXPECT_EQ(prediction_words(prediction, 100, CriticalOf::kPlans), first + ": nvme binds\n             " + critical);
  EXPECT_EQ(prediction_words(prediction, 100, CriticalOf::kTheseHomes),
            first + ": nvme binds\n             homes as they are, " + critical);
  prediction.clipped_ms = 1500;
  EXPECT_THAT(prediction_words(prediction, 100, CriticalOf::kPlans),
              HasSubstr("binds\n             1500.0 ms where the clip engages\n"));
  prediction.step_ms = 90e3;
  EXPECT_THAT(prediction_words(prediction, 100, CriticalOf::kPlans), HasSubstr("90000.0 ms (1:30 min) a step; alone"));
}

TEST(PredictionWords, of_lanes_that_wait_for_each_other_say_what_takes_longest) {
  Prediction prediction = of_slow_drives();
  prediction.alone_ms[0] = 500;
  EXPECT_THAT(prediction_words(prediction, 100, CriticalOf::kPlans),
              AllOf(HasSubstr(" 300.0 ms; busiest: nvme 500 of 1000 ms; lanes wait"),
                    HasSubstr("compute takes longest where a step has more than 350 tokens\n")));
}

TEST(PredictionWords, say_where_every_number_of_tokens_would_do_or_none) {
  Prediction prediction = of_slow_drives();
  const auto words = [&](CriticalOf of) { return prediction_words(prediction, 100, of); };
  prediction.critical_micro_batches = 0.01;  // a token
  EXPECT_THAT(words(CriticalOf::kPlans), HasSubstr(" compute binds with any number of tokens a step\n"));
  prediction.critical_micro_batches = {};
  EXPECT_THAT(words(CriticalOf::kPlans), HasSubstr(" with no number of tokens a step that these budgets hold\n"));
  EXPECT_THAT(words(CriticalOf::kTheseHomes),
              HasSubstr("homes as they are, compute binds with no number of tokens a step\n"));
  prediction.binding = LaneGroup::kCompute;
  EXPECT_THAT(words(CriticalOf::kPlans), Not(HasSubstr("tokens"))) << "it binds with these";
}

TEST(PredictionJson, has_every_time_by_its_name) {
  using Json = nlohmann::ordered_json;
  Prediction prediction = of_slow_drives();
  const auto json = [&] { return Json::parse(prediction_json(prediction, 100)); };
  EXPECT_EQ(json()["step_ms"], 1000);
  EXPECT_EQ(json()["clipped_step_ms"], nullptr);
  EXPECT_EQ(json()["binding"], "nvme");
  EXPECT_EQ(json()["alone_ms"].dump(), R"({"nvme":900.0,"cpu":0.25,"copies":2.0,"compute":300.0})");
  for (int lane = 0; lane < kLaneCount; ++lane)
    EXPECT_EQ(json()["busy_ms"][std::string(name_of(static_cast<Lane>(lane)))], lane + 1);
  EXPECT_EQ(json()["critical_tokens"], 350);
  prediction.clipped_ms = 1500;
  EXPECT_EQ(json()["clipped_step_ms"], 1500);
  prediction.critical_micro_batches = 1e17;  // more tokens than a whole number holds
  EXPECT_EQ(json()["critical_tokens"], nullptr);
}

class SpeedsOfANamedMachine : public testing::Test {
 protected:
  SpeedsOfANamedMachine() { wanted_.machine = MachineSpeeds{.read_gb_per_s = 2, .drives = 2, .compute_cores = 1}; }
  StepSpeeds speeds() { return find_speeds(setup_, {}, wanted_, {}).value(); }

  RunSetup setup_{.model = Gpt2({.vocab_size = 256, .n_positions = 32, .n_embd = 32, .n_layer = 1, .n_head = 2}, {})};
  SpeedsWanted wanted_{.machine = {}, .folders = {"a"}, .waiting_ms = 2};
};

TEST_F(SpeedsOfANamedMachine, where_compute_waits_have_visits_of_that_time_and_no_cores_for_it) {
  std::vector<VisitTime> visits(setup_.model.spec().visits.size(), {.forward_ms = 2, .backward_ms = 6});
  visits.back().backward_ms = 8;  // its forward is there too
  EXPECT_EQ(speeds().visits, visits);
  EXPECT_EQ(speeds().machine.compute_cores, 0);
}

TEST_F(SpeedsOfANamedMachine, have_visits_by_how_fast_it_computes) {
  wanted_.waiting_ms = {};
  wanted_.machine->compute_tflop_per_s = 0.5;
  EXPECT_EQ(speeds().visits, setup_.model.estimate_visits(0.5));
  EXPECT_EQ(speeds().machine.compute_cores, 1);
}

TEST_F(SpeedsOfANamedMachine, are_of_as_many_drives_as_are_asked_for_or_as_there_are_folders) {
  EXPECT_EQ(speeds().machine.read_gb_per_s, 1);
  wanted_.drive_count = 6;
  EXPECT_EQ(speeds().machine.read_gb_per_s, 6);
  EXPECT_EQ(speeds().machine.drives, 6);
}

TEST(TokensOfMicroBatch, are_those_of_its_samples) {
  RunSetup setup{.model = Gpt2({.n_layer = 1}, {})};
  setup.config.batch = {.train = 6, .micro = 3, .accumulation = 2};
  setup.config.data.sequence_length = 33;
  EXPECT_EQ(tokens_of_micro_batch(setup), 99);
}

}  // namespace
}  // namespace sluice
