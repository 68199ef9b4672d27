// Updates in a backward whose scale was other than predicted: clipped steps, skipped ones, steps that throw, runs that
// are left.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "tests/engine/update_modes_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum HomeKind;

class UndoneUpdates : public UpdateModes {};

// What a caller does between two steps meets records that the step before has updated wrongly.
TEST_F(UndoneUpdates, what_is_asked_of_the_engine_after_a_wrong_prediction_meets_the_step_s_true_records) {
  reference_.max_norm = kAlwaysClips;
  const RunRecord expected = train_reference(model_, reference_);
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeKind home : {kHost, kNvme, kDevice}) {
      std::vector<double> losses[2];  // asked in each step, and of a run whose updates wait
      Digests digests[2];
      for (const bool waits : {false, true}) {
        TempFolder folder;
        EngineOptions with = engine_options(folder, reference_);
        with.plan.commit_interval = 1;
        with.plan.update = waits ? UpdateMode::kDeferred : mode;
        put_all_at(home, with.plan.update, with.plan.placement);
        Engine engine(model_, with, toy_source());
        while (engine.step() < reference_.steps) {
          const int64_t number = engine.step() + 1;
          const StepEnd end = engine.train_step(reference_.learning_rate, toy_compute(model_, number));
          EXPECT_EQ(end.speculated, waits ? Speculated::kNone : Speculated::kWrong);
          if (number % 3 == 1) losses[waits].push_back(engine.evaluate(1, toy_compute(model_, number)));
          if (number % 3 == 2) digests[waits] = engine.digests();
        }
        EXPECT_EQ(engine.digests().state_crc32c, expected.state_crc32c) << name_of(mode);
      }
      EXPECT_EQ(losses[0], losses[1]);
      EXPECT_EQ(digests[0].state_crc32c, digests[1].state_crc32c);
      EXPECT_EQ(digests[0].weights_crc32c, digests[1].weights_crc32c);
    }
  }
}

Digests train_poisoned(const ModelSpec& model, const EngineOptions& options) {
  Engine engine(model, options, toy_source());
  int64_t number = 1;
  const Compute compute = poisoned(model, number, {2, 3, 5});
  for (; number <= 6; ++number) {
    const bool bad = number == 2 || number == 3 || number == 5;
    EXPECT_EQ(engine.train_step(1e-2, compute).skipped, bad);
    EXPECT_EQ(engine.last_lanes().bytes(Lane::kWrite, Group::kState) > 0,
              options.plan.update != UpdateMode::kDeferred || number > 1);
  }
  return engine.digests();
}

TEST_F(UndoneUpdates, a_skipped_step_undoes_what_was_updated_early) {
  for (HomeKind home : {kHost, kNvme, kDevice}) {
    EngineOptions with = options();
    with.plan.commit_interval = 1;
    with.plan.update = UpdateMode::kDeferred;
    put_all_at(home, with.plan.update, with.plan.placement);
    TempFolder other;
    with.store.folder = other.path();
    Digests expected;
    {
      Engine engine(model_, with, toy_source());
      int64_t number = 1;
      const Compute compute = poisoned(model_, number, {2, 3, 5});
      for (; number <= 6; ++number) engine.train_step(1e-2, compute);
      expected = engine.digests();
    }
    for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
      TempFolder folder;
      with.store.folder = folder.path();
      with.plan.update = mode;
      put_all_at(home, mode, with.plan.placement);
      const Digests found = train_poisoned(model_, with);
      EXPECT_EQ(found.weights_crc32c, expected.weights_crc32c);
      EXPECT_EQ(found.state_crc32c, expected.state_crc32c);
    }
  }
}

// Adds NaN to the gradient of a chunk's first element.
Compute poisoned_at(const Engine& engine, int chunk, Compute good) {
  const Chunk& range = engine.geometry().chunks()[static_cast<size_t>(chunk)];
  for (const Parameter& parameter : engine.geometry().parameters_of(range.partition)) {
    if (parameter.offset + parameter.elements <= range.first) continue;
    const auto element = static_cast<size_t>(std::max<int64_t>(range.first - parameter.offset, 0));
    return [&parameter, element, good](Use& use) {
      good(use);
      if (use.pass() != Pass::kBackward) return;
      for (size_t i = 0; i < use.weights().size(); ++i) {
        if (use.weights()[i].parameter != &parameter) continue;
        use.open_gradient(static_cast<int>(i))[element] = std::numeric_limits<float>::quiet_NaN();
      }
    };
  }
  throw std::logic_error("the chunk is padding");
}

// No early update meets the NaN: the norm alone tells of it.
TEST_F(UndoneUpdates, a_skipped_step_undoes_early_updates_that_saw_finite_gradients_alone) {
  reference_.max_norm = kNeverClips;
  for (const HomeKind home : {kHost, kNvme, kDevice}) {
    TempFolder folder;
    EngineOptions with = engine_options(folder, reference_);
    with.plan.update = UpdateMode::kSpeculative;
    with.plan.speculated_share = 0.6;
    put_all_at(home, with.plan.update, with.plan.placement);
    Engine engine(model_, with, toy_source());
    int waits = 0;
    while (engine.plan().speculated(waits)) ++waits;
    int64_t number = 1;
    const Compute good = toy_compute(model_, number);
    EXPECT_EQ(engine.train_step(reference_.learning_rate, good).speculated, Speculated::kRight);
    const Digests before = engine.digests();
    number = 2;
    const StepEnd end = engine.train_step(reference_.learning_rate, poisoned_at(engine, waits, good));
    EXPECT_TRUE(end.skipped);
    EXPECT_EQ(end.speculated, Speculated::kWrong);
    const Digests after = engine.digests();
    EXPECT_EQ(after.weights_crc32c, before.weights_crc32c) << name_of(home);
    EXPECT_EQ(after.state_crc32c, before.state_crc32c) << name_of(home);
  }
}

TEST_F(UndoneUpdates, a_step_that_throws_undoes_what_was_updated_early) {
  reference_.max_norm = median_norm(model_, reference_);
  const RunRecord expected = train_reference(model_, reference_);
  for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (HomeKind home : {kHost, kNvme, kDevice}) {
      TempFolder folder;
      EngineOptions with = engine_options(folder, reference_);
      with.plan.update = mode;
      put_all_at(home, mode, with.plan.placement);
      Engine engine(model_, with, toy_source());
      for (int bad_turn = 0; bad_turn < turns_of_a_step(); bad_turn += 2) {
        expect_step_to_throw(engine, model_, bad_turn);
        const int64_t number = engine.step() + 1;
        if (bad_turn == 6) engine.train_step(reference_.learning_rate, toy_compute(model_, number));
      }
      const RunRecord record = train_engine(engine, model_, reference_);
      EXPECT_EQ(record.weights_crc32c, expected.weights_crc32c);
      EXPECT_EQ(record.state_crc32c, expected.state_crc32c);
    }
  }
}

TEST_F(UndoneUpdates, what_is_read_after_a_step_that_threw_is_of_the_step_before) {
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeKind home : {kHost, kNvme, kDevice}) {
      TempFolder folder;
      EngineOptions with = engine_options(folder, reference_);
      with.plan.update = mode;
      put_all_at(home, mode, with.plan.placement);
      Engine engine(model_, with, toy_source());
      const int64_t first = 1;
      engine.train_step(reference_.learning_rate, toy_compute(model_, first));
      const Digests before = engine.digests();  // all is committed
      for (int i = 0; i < 5; ++i) {
        expect_step_to_throw(engine, model_, turns_of_a_step() - 1);
        const Digests after = engine.digests();
        EXPECT_EQ(after.weights_crc32c, before.weights_crc32c) << name_of(mode) << ", " << name_of(home);
        EXPECT_EQ(after.state_crc32c, before.state_crc32c) << name_of(mode) << ", " << name_of(home);
      }
    }
  }
}

TEST_F(UndoneUpdates, a_run_left_at_any_step_resumes_to_the_same_bits) {
  reference_.max_norm = median_norm(model_, reference_);
  const RunRecord expected = train_reference(model_, reference_);
  for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (int stop = 1; stop < reference_.steps; ++stop) {
      EngineOptions with = options();
      with.plan.update = mode;
      with.plan.placement.weights = {{kHost, 0.5}, {kNvme, 0.5}};
      with.plan.placement.gradient = gradients_at(stop % 2 ? kNvme : kHost, mode);
      {
        Engine engine(model_, with, toy_source());
        for (int64_t number = 1; number <= stop; ++number) {
          engine.train_step(reference_.learning_rate, toy_compute(model_, number));
        }
      }
      with.open = OpenMode::kResume;
      with.plan.update = UpdateMode::kAuto;
      with.plan.placement.gradient = {};
      Engine resumed(model_, with, toy_source());
      EXPECT_GE(resumed.step(), stop - 1);
      EXPECT_EQ(train_engine(resumed, model_, reference_).state_crc32c, expected.state_crc32c) << stop;
    }
  }
}

TEST_F(UndoneUpdates, a_caller_s_own_loop_is_asked_to_run_the_step_again) {
  reference_.max_norm = kAlwaysClips;
  reference_.steps = 2;
  EngineOptions with = options();
  with.plan.update = UpdateMode::kReplay;
  Engine engine(model_, with, toy_source());
  const int last = static_cast<int>(model_.visits.size()) - 1;
  std::vector<bool> again;
  while (engine.step() < reference_.steps) {
    const int64_t number = engine.step() + 1;
    const Compute compute = toy_compute(model_, number);
    engine.begin_step(reference_.learning_rate);
    for (int turn = 0; turn <= 2 * last; ++turn) {
      for (int m = 0; m < reference_.micro_batches; ++m) {
        Use use = turn < last ? engine.enter(turn, Pass::kForward) : engine.enter(2 * last - turn, Pass::kBackward);
        compute(use);
      }
    }
    const StepEnd end = engine.finish_step();
    again.push_back(end.run_again);
    EXPECT_EQ(end.speculated, Speculated::kWrong) << "either run";
    EXPECT_EQ(engine.step(), end.run_again ? number - 1 : number);
  }
  EXPECT_EQ(again, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(engine.digests().state_crc32c, train_reference(model_, reference_).state_crc32c);
}

TEST_F(UndoneUpdates, replay_refuses_compute_that_gives_other_gradients_the_second_time) {
  EngineOptions with = options();
  with.max_norm = kAlwaysClips;
  with.plan.update = UpdateMode::kReplay;
  Engine engine(model_, with, toy_source());
  int64_t turns = 0;
  const int64_t number = 1;
  const Compute drifting = [&, good = toy_compute(model_, number)](Use& use) {
    good(use);
    if (use.pass() == Pass::kBackward) use.open_gradient(0)[0] += static_cast<float>(++turns);
  };
  try {
    engine.train_step(1e-2, drifting);
    FAIL();
  } catch (const NumericsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 1 ran again"), HasSubstr("deferred")));
  }
}

}  // namespace
}  // namespace sluice::testing
