// The loss scale of fp16: its schedule, the steps it makes the engine skip, and that neither placement, update mode nor
// a resume changes a bit of them.
#include "engine/loss_scale.h"

#include <gmock/gmock.h>

#include <limits>

#include "engine/speculation.h"
#include "tests/engine/engine_fixture.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum HomeKind;
using Kind = LossScaleOptions::Kind;
using Patience = LossScaleOptions::Patience;

// '.' a good step, '!' one that overflows; after each, the scale of the next step. Those of dynamic scales are what
// DeepSpeed 0.19.5's DynamicLossScaler, run by itself with these options, has as cur_scale after each update_scale.
struct ScheduleCase {
  const char* what;
  LossScaleOptions options;
  std::string steps;
  std::vector<double> scales;
};

const ScheduleCase kSchedules[] = {
    {"a static scale stays", {.kind = Kind::kStatic, .first = 128}, "..!!.", {128, 128, 128, 128, 128}},
    {"doubles after a window of good steps beyond the first, and again after each window",
     {.kind = Kind::kDynamic, .first = 8, .window = 3},
     "..........",
     {8, 8, 8, 16, 16, 16, 32, 32, 32, 64}},
    {"a window of 1: every good step but the first in a row doubles",
     {.kind = Kind::kDynamic, .first = 8, .window = 1},
     "....",
     {8, 16, 32, 64}},
    {"hysteresis 1: every overflow halves",
     {.kind = Kind::kDynamic, .first = 64, .window = 3, .hysteresis = 1},
     "!!.!",
     {32, 16, 16, 8}},
    {"hysteresis 2: the first overflow is let pass, those after it halve",
     {.kind = Kind::kDynamic, .first = 64, .window = 5, .hysteresis = 2},
     "!!!.!",
     {64, 32, 16, 16, 8}},
    {"the window is counted from the last overflow",
     {.kind = Kind::kDynamic, .first = 64, .window = 3, .hysteresis = 1},
     "..!..!.......",
     {64, 64, 32, 32, 32, 16, 16, 16, 16, 32, 32, 32, 64}},
    {"a step short of the window raises nothing",
     {.kind = Kind::kDynamic, .first = 64, .window = 3, .hysteresis = 1},
     "..!...!....",
     {64, 64, 32, 32, 32, 32, 16, 16, 16, 16, 32}},
    {"an overflow between raises begins the count anew",
     {.kind = Kind::kDynamic, .first = 16, .window = 2, .hysteresis = 1},
     "...!.....!...",
     {16, 16, 32, 16, 16, 16, 32, 32, 64, 32, 32, 32, 64}},
    {"patience comes back where the scale is raised",
     {.kind = Kind::kDynamic, .first = 64, .window = 2, .hysteresis = 2},
     "!.!...!!",
     {64, 64, 32, 32, 32, 64, 64, 32}},
    {"consecutive hysteresis: patience comes back with every good step",
     {.kind = Kind::kDynamic, .first = 64, .window = 9, .hysteresis = 2, .patience = Patience::kAnewAfterGoodStep},
     "!.!.!!",
     {64, 64, 64, 64, 64, 32}},
    {"consecutive hysteresis and raises",
     {.kind = Kind::kDynamic, .first = 64, .window = 2, .hysteresis = 2, .patience = Patience::kAnewAfterGoodStep},
     "!...!!...!",
     {64, 64, 64, 128, 128, 64, 64, 64, 128, 128}},
    {"never below the least",
     {.kind = Kind::kDynamic, .first = 12, .least = 4, .window = 9, .hysteresis = 1},
     "!!!",
     {6, 4, 4}},
    {"never beyond the largest, which DeepSpeed's has not",
     {.kind = Kind::kDynamic, .first = kLargestLossScale, .window = 1},
     "..",
     {kLargestLossScale, kLargestLossScale}},
};

TEST(LossScale, is_deepspeeds_after_every_step) {
  for (const ScheduleCase& each : kSchedules) {
    StepState state;
    begin_loss_scale(each.options, state);
    for (size_t i = 0; i < each.steps.size(); ++i) {
      note_step(each.options, each.steps[i] == '.' ? StepWas::kGood : StepWas::kSkipped, state);
      EXPECT_EQ(state.loss_scale, each.scales[i]) << each.what << ", step " << i + 1;
    }
  }
}

TEST(LossScale, counts_skips_in_a_row_where_it_cannot_be_lowered) {
  const LossScaleOptions options{.kind = Kind::kDynamic, .first = 4, .least = 2, .window = 9, .hysteresis = 1};
  StepState state;
  begin_loss_scale(options, state);
  for (const int64_t expected : {0, 1, 2}) {
    note_step(options, StepWas::kSkipped, state);
    EXPECT_EQ(state.skipped_in_a_row, expected);
  }
  note_step(options, StepWas::kGood, state);
  EXPECT_EQ(state.skipped_in_a_row, 0);
  StepState resumed{
      .step = 20, .skipped_in_a_row = kMostSkipsInARow - 1, .loss_scale = 8};  // by a run whose scale stayed
  begin_loss_scale(options, resumed);
  note_step(options, StepWas::kSkipped, resumed);
  EXPECT_EQ(resumed.skipped_in_a_row, 0) << "it is lowered now";
}

TEST(LossScale, goes_on_from_a_store_under_other_options) {
  const LossScaleOptions before{.kind = Kind::kDynamic, .first = 64, .window = 9, .hysteresis = 3};
  StepState state{.step = 7};
  begin_loss_scale(before, state);
  state.loss_scale = 32;
  state.hysteresis_left = 3;
  state.good_steps = 5;
  begin_loss_scale({.kind = Kind::kDynamic, .first = 8, .least = 2, .window = 4, .hysteresis = 2}, state);
  EXPECT_EQ(state.loss_scale, 32);
  EXPECT_EQ(state.hysteresis_left, 2);
  EXPECT_EQ(state.good_steps, 5);
  begin_loss_scale({.kind = Kind::kDynamic, .first = 128, .least = 64}, state);
  EXPECT_EQ(state.loss_scale, 64);
  begin_loss_scale({.kind = Kind::kStatic, .first = 16}, state);
  EXPECT_EQ(state.loss_scale, 16);
  EXPECT_EQ(state.good_steps, 0) << "a dynamic one that follows counts from its own first step";
  EXPECT_EQ(state.hysteresis_left, 0);
}

TEST(LossScale, refuses_values_that_mean_nothing) {
  EXPECT_THROW((LossScaleOptions{.first = 0}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.first = 2 * kLargestLossScale}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.first = std::numeric_limits<double>::quiet_NaN()}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.kind = Kind::kDynamic, .first = 2, .least = 4}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.kind = Kind::kDynamic, .least = 0}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.kind = Kind::kDynamic, .window = 0}).validate(), ConfigError);
  EXPECT_THROW((LossScaleOptions{.kind = Kind::kDynamic, .hysteresis = 0}).validate(), ConfigError);
  EXPECT_NO_THROW(LossScaleOptions{}.validate());
}

// The toy's gradients overflow in fp16 from a scale of about 2^17 on.
constexpr double kNeverOverflows = 0x1p10, kAlwaysOverflows = 0x1p40;
constexpr LossScaleOptions kNowAndThen{.kind = Kind::kDynamic, .first = 0x1p16, .window = 2, .hysteresis = 1};

class Fp16 : public ::testing::Test {
 protected:
  EngineOptions options(const TempFolder& folder, UpdateMode mode) const {
    EngineOptions with = engine_options(folder, reference_);
    with.plan.update = mode;
    if (mode != UpdateMode::kDeferred) with.plan.speculated_share = 0.6;
    with.plan.placement = {.weights = {{kNvme, 0.5}, {kHost, 0.5}}, .state = {{kHost, 0.5}, {kNvme, 0.5}}};
    return with;
  }
  void expect_reference_in_every_mode() const {
    const RunRecord expected = train_reference(model_, reference_);
    for (const UpdateMode mode :
         {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay, UpdateMode::kAuto}) {
      TempFolder folder;
      Engine engine(model_, options(folder, mode), toy_source());
      EXPECT_EQ(train_engine(engine, model_, reference_), expected) << name_of(mode);
      TempFolder other;
      EngineOptions on_device = options(other, mode);
      on_device.plan.placement = {.state = {{kDevice, 0.6}, {kNvme, 0.4}}};
      Engine updated_there(model_, on_device, toy_source());
      EXPECT_EQ(train_engine(updated_there, model_, reference_), expected) << name_of(mode) << ", on the device";
    }
  }
  int skipped() const {
    int count = 0;
    for (const StepRecord& step : train_reference(model_, reference_).steps) count += step.skipped ? 1 : 0;
    return count;
  }

  ReferenceOptions reference_{
      .precision = Precision::kFp16, .gradient_dtype = DType::kFp16, .micro_batches = 2, .steps = 9};
  ModelSpec model_ = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kFp16);
};

TEST_F(Fp16, trains_to_the_bits_of_the_reference_in_every_mode_when_nothing_overflows) {
  for (const double clip : {0.0, 0.05}) {
    reference_.max_norm = clip;
    reference_.loss_scale = {.first = kNeverOverflows};
    EXPECT_EQ(skipped(), 0);
    expect_reference_in_every_mode();
  }
}

TEST_F(Fp16, keeps_every_bit_in_every_mode_when_every_step_overflows) {
  reference_.loss_scale = {.first = kAlwaysOverflows};
  EXPECT_EQ(skipped(), reference_.steps);
  expect_reference_in_every_mode();
}

TEST_F(Fp16, trains_to_the_bits_of_the_reference_in_every_mode_when_steps_overflow_now_and_then) {
  reference_.steps = 16;
  for (const auto& [hysteresis, patience] : {std::pair<int64_t, Patience>{1, Patience::kAnewWhenRaised},
                                             {2, Patience::kAnewWhenRaised},
                                             {2, Patience::kAnewAfterGoodStep}}) {
    reference_.loss_scale = kNowAndThen;
    reference_.loss_scale.hysteresis = hysteresis;
    reference_.loss_scale.patience = patience;
    reference_.max_norm = 0;
    reference_.max_norm = 1.2 * median_norm(model_, reference_);
    EXPECT_GE(skipped(), 2);
    EXPECT_LE(skipped(), reference_.steps - 6);
    expect_reference_in_every_mode();
  }
}

TEST_F(Fp16, updates_early_with_the_scale_of_the_step_and_is_right_where_nothing_engages) {
  reference_.loss_scale = {.kind = Kind::kDynamic, .first = kNeverOverflows, .window = 2};
  TempFolder folder;
  Engine engine(model_, options(folder, UpdateMode::kSpeculative), toy_source());
  for (int64_t step = 1; step <= 6; ++step) {
    const StepEnd end = engine.train_step(1e-2, toy_compute(model_, step));
    EXPECT_EQ(end.loss_scale, kNeverOverflows * static_cast<double>(int64_t{1} << (step - 2) / 2));
    EXPECT_EQ(end.speculated, Speculated::kRight);
  }
}

// The scale rises until gradients overflow, falls and rises again.
TEST_F(Fp16, auto_updates_early_after_steps_that_were_neither_clipped_nor_skipped_whatever_their_scale) {
  reference_.steps = 30;
  reference_.loss_scale = {.kind = Kind::kDynamic, .first = 0x1p13, .window = 2, .hysteresis = 1};
  TempFolder folder;
  Engine engine(model_, options(folder, UpdateMode::kAuto), toy_source());
  Speculation expected;
  int early = 0, skips = 0, waits_after_skip = 0;
  for (int64_t step = 1; step <= reference_.steps; ++step) {
    const bool speculates = expected.next() == Speculation::Choice::kSpeculative;
    const StepEnd end = engine.train_step(reference_.learning_rate, toy_compute(model_, step));
    EXPECT_EQ(end.speculated != Speculated::kNone, speculates) << "step " << step;
    EXPECT_EQ(end.speculated == Speculated::kRight, speculates && !end.skipped) << "step " << step;
    early += speculates ? 1 : 0;
    skips += end.skipped ? 1 : 0;
    waits_after_skip += !speculates && skips > 0 ? 1 : 0;
    expected.note(step, end.skipped ? Speculation::Scale::kOther : Speculation::Scale::kAsPredicted);
  }
  EXPECT_GT(early, 2);
  EXPECT_GT(waits_after_skip, 2);
}

TEST_F(Fp16, resumes_at_any_step_to_the_bits_of_a_run_that_never_stopped) {
  reference_.steps = 12;
  reference_.loss_scale = kNowAndThen;
  reference_.loss_scale.hysteresis = 2;
  reference_.max_norm = 0.05;
  const RunRecord expected = train_reference(model_, reference_);
  ASSERT_GE(skipped(), 2);
  for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (int stop = 1; stop < reference_.steps; ++stop) {
      TempFolder folder;
      EngineOptions with = options(folder, mode);
      with.plan.commit_interval = 1;
      {
        Engine engine(model_, with, toy_source());
        for (int64_t step = 1; step <= stop; ++step) {
          engine.train_step(reference_.learning_rate, toy_compute(model_, step));
        }
        if (stop % 2 == 0) engine.drain();
      }
      with.open = OpenMode::kResume;
      Engine resumed(model_, with, toy_source());
      EXPECT_GE(resumed.step(), stop - 1);
      const auto first = static_cast<size_t>(resumed.step());
      const RunRecord rest = train_engine(resumed, model_, reference_);
      EXPECT_TRUE(std::equal(rest.steps.begin(), rest.steps.end(), expected.steps.begin() + first)) << stop;
      EXPECT_EQ(rest.weights_crc32c, expected.weights_crc32c) << stop;
      EXPECT_EQ(rest.state_crc32c, expected.state_crc32c) << stop;
    }
  }
}

TEST_F(Fp16, resumes_with_the_scale_that_other_options_make_of_the_committed_one) {
  const LossScaleOptions before{.kind = Kind::kDynamic, .first = 0x1p8};
  const auto scale_after_resuming_with = [&](const LossScaleOptions& other) {
    TempFolder folder;
    reference_.loss_scale = before;
    {
      Engine engine(model_, options(folder, UpdateMode::kDeferred), toy_source());
      EXPECT_EQ(engine.train_step(1e-2, toy_compute(model_, 1)).loss_scale, before.first);
      engine.drain();
    }
    reference_.loss_scale = other;
    EngineOptions with = options(folder, UpdateMode::kDeferred);
    with.open = OpenMode::kResume;
    Engine resumed(model_, with, toy_source());
    EXPECT_EQ(resumed.step(), 1);
    return resumed.train_step(1e-2, toy_compute(model_, 2)).loss_scale;
  };
  EXPECT_EQ(scale_after_resuming_with(before), before.first);
  EXPECT_EQ(scale_after_resuming_with({.kind = Kind::kStatic, .first = 0x1p6}), 0x1p6);
  EXPECT_EQ(scale_after_resuming_with({.kind = Kind::kDynamic, .first = 0x1p10, .least = 0x1p10}), 0x1p10);
}

TEST_F(Fp16, says_which_step_was_skipped_and_what_became_of_the_scale) {
  reference_.loss_scale = {.kind = Kind::kDynamic, .first = kAlwaysOverflows, .hysteresis = 1};
  TempFolder folder;
  EngineOptions with = options(folder, UpdateMode::kAuto);
  std::string log;
  with.log = [&](LogLevel, const std::string& line) { log += line + "\n"; };
  Engine engine(model_, with, toy_source());
  engine.train_step(1e-2, toy_compute(model_, 1));
  EXPECT_THAT(log, HasSubstr("step 1 is skipped: a gradient is not finite at a loss scale of 1.09951e+12; the next one "
                             "has 5.49756e+11"));
}

TEST_F(Fp16, stops_after_ten_skips_at_the_least_scale_and_names_the_block) {
  reference_.loss_scale = {
      .kind = Kind::kDynamic, .first = 4 * kAlwaysOverflows, .least = kAlwaysOverflows, .hysteresis = 1};
  TempFolder folder;
  Engine engine(model_, options(folder, UpdateMode::kAuto), toy_source());
  constexpr int64_t kFalls = 2;
  for (int64_t step = 1; step < kFalls + kMostSkipsInARow; ++step) {
    EXPECT_TRUE(engine.train_step(1e-2, toy_compute(model_, step)).skipped);
  }
  try {
    engine.train_step(1e-2, toy_compute(model_, kFalls + kMostSkipsInARow));
    FAIL() << "went on";
  } catch (const NumericsError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("10 steps in a row"), HasSubstr("loss scale of 1.09951e+12"), HasSubstr("step 12"),
                      HasSubstr("p0 (parameter b0.bias)"), HasSubstr("give a smaller fp16.min_loss_scale")));
  }
}

TEST_F(Fp16, stops_after_ten_skips_at_a_scale_that_was_given_and_names_its_key) {
  reference_.loss_scale = {.first = kAlwaysOverflows};
  TempFolder folder;
  Engine engine(model_, options(folder, UpdateMode::kAuto), toy_source());
  for (int64_t step = 1; step < kMostSkipsInARow; ++step) engine.train_step(1e-2, toy_compute(model_, step));
  EXPECT_THAT(message_of<NumericsError>([&] { engine.train_step(1e-2, toy_compute(model_, kMostSkipsInARow)); }),
              AllOf(HasSubstr("10 steps in a row"), HasSubstr("give a smaller fp16.loss_scale")));
}

// The masters are finite: 1e5 in fp32.
TEST_F(Fp16, commits_no_weight_that_is_too_large_and_says_so) {
  const std::string bad = "b2.bias";
  for (const auto& [home, wanted] : {std::pair{kHost, "made a weight of parameter b2.bias too large for fp16 (-1"},
                                     std::pair{kDevice, "non-finite, or a weight too large for fp16"}}) {
    TempFolder folder;
    EngineOptions with = options(folder, UpdateMode::kDeferred);
    with.plan.placement = {.state = {{home, 1}}};
    with.plan.commit_interval = 1;
    with.groups = {{.parameters = {bad}, .adam = reference_.adam, .learning_rate_factor = 1e7}};
    {
      Engine engine(model_, with, toy_source());
      engine.train_step(1e-2, toy_compute(model_, 1));
      EXPECT_THAT(message_of<NumericsError>([&] { engine.drain(); }),
                  AllOf(HasSubstr(wanted), HasSubstr("bf16 and fp32 hold larger weights")));
    }
    with.open = OpenMode::kResume;
    EXPECT_EQ(Engine(model_, with, toy_source()).step(), 0);
  }
}

}  // namespace
}  // namespace sluice::testing
