// When a chunk is updated changes no bit: deferred, speculative, replayed; clipped never, always, now and then;
// skipped.
#include <gmock/gmock.h>

#include <limits>

#include "engine/speculation.h"
#include "tests/engine/engine_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum HomeKind;

// How often each thing happened to a step's early updates.
struct Course {
  int none = 0, right = 0, wrong = 0, skipped = 0, run_again = 0;
};

class UpdateModes : public ::testing::Test {
 protected:
  EngineOptions options() const { return engine_options(folder_, reference_); }
  void choose(UpdateMode mode, double share = 0.6) {
    mode_ = mode;
    share_ = share;
  }
  // A run of its own, in the mode chosen, with `change` made to its options.
  Course expect_reference(const std::function<void(EngineOptions&)>& change = [](EngineOptions&) {}) const {
    TempFolder folder;
    EngineOptions with = engine_options(folder, reference_);
    with.plan.update = mode_;
    with.plan.speculated_share = share_;
    with.plan.placement.state = {{kNvme, 1}};
    change(with);
    Engine engine(model_, with, toy_source());
    Course course;
    RunRecord record;
    int64_t step = 0;
    int turns = 0;
    const Compute compute = [&, good = toy_compute(model_, step)](Use& use) {
      ++turns;
      good(use);
    };
    while (engine.step() < reference_.steps) {
      step = engine.step() + 1;
      turns = 0;
      const StepEnd end = engine.train_step(reference_.learning_rate, compute);
      record.steps.emplace_back(end);
      course.none += end.speculated == Speculated::kNone ? 1 : 0;
      course.right += end.speculated == Speculated::kRight ? 1 : 0;
      course.wrong += end.speculated == Speculated::kWrong ? 1 : 0;
      course.skipped += end.skipped ? 1 : 0;
      course.run_again += turns > turns_of_a_step() ? 1 : 0;
    }
    const Digests digests = engine.digests();
    record.weights_crc32c = digests.weights_crc32c;
    record.state_crc32c = digests.state_crc32c;
    EXPECT_EQ(record, train_reference(model_, reference_));
    return course;
  }
  int turns_of_a_step() const { return (2 * static_cast<int>(model_.visits.size()) - 1) * reference_.micro_batches; }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 7};
  ModelSpec model_ = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  UpdateMode mode_ = UpdateMode::kSpeculative;
  double share_ = 0.6;
};

constexpr double kNeverClips = 1e9, kAlwaysClips = 1e-3;

// Replay keeps none.
HomeShares gradients_at(HomeKind home, UpdateMode mode) {
  return mode == UpdateMode::kReplay ? HomeShares{} : HomeShares{{home, 1}};
}

TEST_F(UpdateModes, a_clip_that_never_engages_makes_every_prediction_right) {
  reference_.max_norm = kNeverClips;
  for (double share : {0.3, 1.0}) {
    choose(UpdateMode::kSpeculative, share);
    EXPECT_EQ(expect_reference().right, reference_.steps);
  }
  choose(UpdateMode::kReplay);
  const Course replayed = expect_reference();
  EXPECT_EQ(replayed.right, reference_.steps);
  EXPECT_EQ(replayed.run_again, 0);
}

TEST_F(UpdateModes, a_clip_that_always_engages_changes_no_bit) {
  reference_.max_norm = kAlwaysClips;
  choose(UpdateMode::kDeferred);
  EXPECT_EQ(expect_reference().none, reference_.steps);
  choose(UpdateMode::kSpeculative);
  EXPECT_EQ(expect_reference().wrong, reference_.steps);
  choose(UpdateMode::kReplay);
  const Course replayed = expect_reference();
  EXPECT_EQ(replayed.run_again, reference_.steps);
  EXPECT_EQ(replayed.wrong, reference_.steps);
}

// What a step moves counts each time that it runs.
TEST_F(UpdateModes, a_step_that_runs_again_has_what_both_passes_moved) {
  struct Counted {
    int64_t read = 0, written = 0, uploaded = 0;
    bool operator==(const Counted&) const = default;
  };
  const auto count = [&](double max_norm) {
    reference_.max_norm = max_norm;
    choose(UpdateMode::kReplay, 1);
    TempFolder folder;
    EngineOptions with = engine_options(folder, reference_);
    with.plan.update = UpdateMode::kReplay;
    with.plan.placement = {.weights = {{kNvme, 1}}, .state = {{kNvme, 1}}};
    Engine engine(model_, with, toy_source());
    std::vector<Counted> steps;
    int64_t step = 0;
    const Compute compute = toy_compute(model_, step);
    while (engine.step() < 3) {
      step = engine.step() + 1;
      const StepEnd end = engine.train_step(reference_.learning_rate, compute);
      EXPECT_EQ(end.speculated, max_norm == kNeverClips ? Speculated::kRight : Speculated::kWrong);
      const StepLanes& lanes = engine.last_lanes();
      steps.push_back({lanes.read.bytes, lanes.write.bytes, lanes.upload.bytes});
    }
    return steps;
  };
  const Counted once = count(kNeverClips).back(), again = count(kAlwaysClips).back();
  EXPECT_GE(again.read, once.read * 3 / 2);  // records read ahead are not read again
  EXPECT_EQ(again.written, 2 * once.written);
  EXPECT_EQ(again.uploaded, 2 * once.uploaded);
}

TEST_F(UpdateModes, a_clip_that_engages_now_and_then_changes_no_bit_wherever_records_live) {
  reference_.max_norm = median_norm(model_, reference_);
  for (HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
    for (HomeKind state : {kHost, kNvme}) {
      for (HomeKind gradient : {kHost, kDevice, kNvme}) {
        choose(UpdateMode::kSpeculative);
        const Course course = expect_reference([&](EngineOptions& o) {
          o.plan.placement = {.weights = {{weights, 1}}, .state = {{state, 1}}, .gradient = {{gradient, 1}}};
        });
        EXPECT_GT(course.right, 0);
        EXPECT_GT(course.wrong, 0);
      }
      choose(UpdateMode::kReplay);
      const Course course = expect_reference([&](EngineOptions& o) {
        o.plan.placement = {.weights = {{weights, 1}}, .state = {{state, 1}}};
      });
      EXPECT_GT(course.run_again, 0);
      EXPECT_LT(course.run_again, reference_.steps);
    }
  }
}

TEST_F(UpdateModes, state_at_home_on_the_device_is_never_updated_early) {
  reference_.max_norm = median_norm(model_, reference_);
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    choose(mode);
    const Course mixed = expect_reference([&](EngineOptions& o) {
      o.plan.placement.state = {{kDevice, 0.3}, {kNvme, 0.5}, {kDevice, 0.2}};
    });
    EXPECT_GT(mixed.right, 0);
    EXPECT_GT(mode == UpdateMode::kReplay ? mixed.run_again : mixed.wrong, 0);
    const Course all = expect_reference([&](EngineOptions& o) { o.plan.placement.state = {{kDevice, 1}}; });
    EXPECT_EQ(all.none, reference_.steps);
    EXPECT_EQ(all.run_again, 0);
  }
}

TEST_F(UpdateModes, train_within_the_smallest_budgets) {
  reference_.max_norm = median_norm(model_, reference_);
  for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (HomeKind home : {kHost, kNvme}) {
      choose(mode);
      expect_reference([&](EngineOptions& o) {
        o.plan.placement.weights = o.plan.placement.state = o.plan.placement.activations = {{home, 1}};
        o.plan.placement.gradient = gradients_at(home, mode);
        o.update_threads = 1;
        o.plan.io_depth = 1;
        o.plan.host_bytes = Planner(model_, o.plan).smallest_host(o.plan.device_bytes).value();
        o.plan.device_bytes = Planner(model_, o.plan).smallest_device(o.plan.host_bytes).value();
      });
    }
  }
}

// The programs of early updates take memory: where there is none for them, `auto` does without.
TEST_F(UpdateModes, auto_needs_no_more_memory_than_deferred) {
  choose(UpdateMode::kAuto);
  int64_t for_early = 0, given = 0;
  const Course course = expect_reference([&](EngineOptions& o) {
    o.plan.update = UpdateMode::kSpeculative;
    for_early = Planner(model_, o.plan).smallest_host(o.plan.device_bytes).value();
    o.plan.update = UpdateMode::kDeferred;
    given = o.plan.host_bytes = Planner(model_, o.plan).smallest_host(o.plan.device_bytes).value();
    o.plan.update = UpdateMode::kAuto;
  });
  EXPECT_LT(given, for_early);
  EXPECT_EQ(course.none, reference_.steps);
}

TEST_F(UpdateModes, replay_keeps_no_gradients) {
  EngineOptions with = options();
  with.plan.placement.gradient = {};
  with.plan.update = UpdateMode::kSpeculative;  // whose programs are as long
  const int64_t kept = Planner(model_, with.plan).smallest_host(with.plan.device_bytes).value();
  with.plan.update = UpdateMode::kReplay;
  const Plan plan = make_plan(model_, with.plan);
  for (const UseRow& row : plan.uses) EXPECT_NE(row.use, "closed gradients");
  EXPECT_LT(Planner(model_, with.plan).smallest_host(with.plan.device_bytes).value(), kept);
}

Digests train_poisoned(const ModelSpec& model, const EngineOptions& options) {
  Engine engine(model, options, toy_source());
  int64_t number = 1;
  const Compute compute = poisoned(model, number, {2, 3, 5});
  for (; number <= 6; ++number) {
    const bool bad = number == 2 || number == 3 || number == 5;
    EXPECT_EQ(engine.train_step(1e-2, compute).skipped, bad);
    EXPECT_EQ(engine.last_lanes().state_write_bytes > 0, options.plan.update != UpdateMode::kDeferred || number > 1);
  }
  return engine.digests();
}

TEST_F(UpdateModes, a_skipped_step_undoes_what_was_updated_early) {
  for (HomeKind home : {kHost, kNvme}) {
    EngineOptions with = options();
    with.plan.commit_interval = 1;
    with.plan.placement.weights = with.plan.placement.state = {{home, 1}};
    with.plan.placement.activations = {{home, 1}};
    with.plan.update = UpdateMode::kDeferred;
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
      with.plan.placement.gradient = gradients_at(home, mode);
      const Digests found = train_poisoned(model_, with);
      EXPECT_EQ(found.weights_crc32c, expected.weights_crc32c);
      EXPECT_EQ(found.state_crc32c, expected.state_crc32c);
    }
  }
}

TEST_F(UpdateModes, a_step_that_throws_undoes_what_was_updated_early) {
  reference_.max_norm = median_norm(model_, reference_);
  const RunRecord expected = train_reference(model_, reference_);
  for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (HomeKind home : {kHost, kNvme}) {
      TempFolder folder;
      EngineOptions with = engine_options(folder, reference_);
      with.plan.update = mode;
      with.plan.placement.weights = with.plan.placement.state = with.plan.placement.activations = {{home, 1}};
      with.plan.placement.gradient = gradients_at(home, mode);
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

TEST_F(UpdateModes, a_run_left_at_any_step_resumes_to_the_same_bits) {
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

TEST_F(UpdateModes, auto_updates_early_once_the_clip_has_stopped_engaging_and_says_so) {
  reference_.steps = 14;
  reference_.max_norm = kNeverClips;
  choose(UpdateMode::kAuto);
  std::vector<std::string> lines;
  const auto keep = [&](EngineOptions& o) {
    o.log = [&](LogLevel, const std::string& line) { lines.push_back(line); };
  };
  const Course course = expect_reference(keep);
  EXPECT_EQ(course.none, Speculation::kFirst);
  EXPECT_EQ(course.right, reference_.steps - Speculation::kFirst);
  EXPECT_THAT(lines, ::testing::Contains(AllOf(HasSubstr("updates run early"), HasSubstr("step 3 "))));
  lines.clear();
  reference_.max_norm = kAlwaysClips;
  EXPECT_EQ(expect_reference(keep).none, reference_.steps);
  EXPECT_THAT(lines, ::testing::Not(::testing::Contains(HasSubstr("updates"))));
}

TEST(SpeculationChoice, follows_the_last_steps) {
  Speculation speculation;
  int64_t step = 0;
  const auto note = [&](int steps, Speculation::Scale scale) {
    std::string last;
    for (int i = 0; i < steps; ++i) last = speculation.note(++step, scale).value_or(last);
    return last;
  };
  EXPECT_EQ(speculation.next(), Speculation::Choice::kDeferred);
  EXPECT_EQ(note(1, Speculation::Scale::kAsPredicted), "");
  EXPECT_EQ(note(1, Speculation::Scale::kOther), "");
  EXPECT_EQ(note(7, Speculation::Scale::kAsPredicted), "");
  EXPECT_THAT(note(1, Speculation::Scale::kAsPredicted), HasSubstr("run early, in the backward, from step 11 on"));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
  EXPECT_EQ(note(1, Speculation::Scale::kOther), "");
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
  EXPECT_THAT(note(1, Speculation::Scale::kOther), HasSubstr("wait for the clip from step 13 on"));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kDeferred);
}

TEST(SpeculationChoice, needs_no_whole_window_where_a_run_begins_without_a_clip) {
  Speculation speculation;
  EXPECT_EQ(speculation.note(1, Speculation::Scale::kAsPredicted), std::nullopt);
  EXPECT_THAT(speculation.note(2, Speculation::Scale::kAsPredicted).value_or(""),
              AllOf(HasSubstr("from step 3 on"), HasSubstr("none of the last 2 steps")));
  EXPECT_EQ(speculation.next(), Speculation::Choice::kSpeculative);
}

TEST_F(UpdateModes, a_caller_s_own_loop_is_asked_to_run_the_step_again) {
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
    EXPECT_EQ(engine.step(), end.run_again ? number - 1 : number);
  }
  EXPECT_EQ(again, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(engine.digests().state_crc32c, train_reference(model_, reference_).state_crc32c);
}

TEST_F(UpdateModes, replay_refuses_compute_that_gives_other_gradients_the_second_time) {
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

TEST_F(UpdateModes, that_need_a_commit_in_every_step_refuse_other_intervals) {
  EngineOptions with = options();
  with.plan.update = UpdateMode::kSpeculative;
  with.plan.commit_interval = 3;
  try {
    make_plan(model_, with.plan);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sluice.update"), HasSubstr("sluice.commit_interval is 3")));
  }
  with.plan.update = UpdateMode::kReplay;
  with.plan.commit_interval = 0;
  EXPECT_EQ(make_plan(model_, with.plan).commit_interval, 1);
  with.plan.placement.gradient = {{kHost, 1}};
  try {
    make_plan(model_, with.plan);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sluice.placement.gradient"));
  }
}

}  // namespace
}  // namespace sluice::testing
