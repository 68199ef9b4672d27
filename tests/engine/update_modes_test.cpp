// When a chunk is updated changes no bit: deferred, speculative, replayed; clipped never, always, now and then.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "engine/speculation.h"
#include "tests/engine/update_modes_fixture.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum HomeKind;

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
      steps.push_back({lanes[Lane::kRead].bytes, lanes[Lane::kWrite].bytes, lanes[Lane::kUpload].bytes});
    }
    return steps;
  };
  const Counted once = count(kNeverClips).back(), again = count(kAlwaysClips).back();
  EXPECT_GT(std::min({once.read, once.written, once.uploaded}), 0);
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

TEST_F(UpdateModes, state_at_home_on_the_device_is_updated_early_and_undone_like_any_other) {
  reference_.max_norm = median_norm(model_, reference_);
  for (const HomeShares& state : {HomeShares{{kDevice, 0.3}, {kNvme, 0.5}, {kDevice, 0.2}},
                                  HomeShares{{kHost, 0.5}, {kDevice, 0.5}}, HomeShares{{kDevice, 1}}}) {
    choose(UpdateMode::kSpeculative);
    const auto put = [&](EngineOptions& o) { o.plan.placement.state = state; };
    const Course speculated = expect_reference(put);
    EXPECT_GT(speculated.right, 0);
    EXPECT_GT(speculated.wrong, 0);
    choose(UpdateMode::kReplay);
    const Course replayed = expect_reference(put);
    EXPECT_GT(replayed.run_again, 0);
    EXPECT_LT(replayed.run_again, reference_.steps);
  }
}

TEST_F(UpdateModes, the_device_updates_in_the_backward_what_the_plan_says) {
  for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    TempFolder folder;
    EngineOptions with = engine_options(folder, reference_);
    with.plan.commit_interval = 1;
    with.plan.update = mode;
    with.plan.speculated_share = 0.6;
    with.plan.placement.state = {{kDevice, 1}};
    Engine engine(model_, with, toy_source());
    int64_t early = 0;
    for (int c = 0; c < static_cast<int>(engine.geometry().chunks().size()); ++c) {
      EXPECT_TRUE(engine.plan().chunks[c].updated_on_device());
      if (engine.plan().speculated(c)) early += engine.geometry().chunks()[c].elements;
    }
    const int64_t number = 1;  // nothing is left of a step before
    engine.train_step(reference_.learning_rate, toy_compute(model_, number));
    const int64_t bytes_each = bytes_per_element(reference_.precision, Group::kState);
    EXPECT_EQ(engine.last_lanes().bytes(Lane::kWrite, Group::kState), early * bytes_each);
    EXPECT_EQ(early > 0, mode != UpdateMode::kDeferred);
    EXPECT_EQ(early == engine.geometry().padded_elements(), mode == UpdateMode::kReplay);
  }
}

TEST_F(UpdateModes, train_within_the_smallest_budgets) {
  reference_.max_norm = median_norm(model_, reference_);
  for (UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (HomeKind home : {kHost, kNvme, kDevice}) {
      choose(mode);
      expect_reference([&](EngineOptions& o) {
        put_all_at(home, mode, o.plan.placement);
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
  const Course there = expect_reference([](EngineOptions& o) {
    o.plan.commit_interval = 1;
    o.plan.placement.state = {{kDevice, 1}};
  });
  EXPECT_EQ(there.right, course.right);
  lines.clear();
  reference_.max_norm = kAlwaysClips;
  EXPECT_EQ(expect_reference(keep).none, reference_.steps);
  EXPECT_THAT(lines, ::testing::Not(::testing::Contains(HasSubstr("updates"))));
}

TEST_F(UpdateModes, that_need_a_commit_in_every_step_refuse_other_intervals) {
  EngineOptions with = options();
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const int interval : {2, 3}) {
      with.plan.update = mode;
      with.plan.commit_interval = interval;
      EXPECT_THAT([&] { make_plan(model_, with.plan); },
                  ::testing::ThrowsMessage<ConfigError>(AllOf(
                      HasSubstr("sluice.update"), HasSubstr(fmt::format("sluice.commit_interval is {}", interval)))))
          << name_of(mode);
    }
  }
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
