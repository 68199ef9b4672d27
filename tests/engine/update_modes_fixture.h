// Runs in every update mode, against the reference that knows of none.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/engine_fixture.h"

namespace sluice::testing {

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
    with.plan.placement.state = {{HomeKind::kNvme, 1}};
    change(with);
    Engine engine(model_, with, toy_source());
    Course course;
    RunRecord record;
    int64_t step = 0;
    int turns = 0;
    const Compute compute = [&, good = toy_compute(model_, step, launch_)](Use& use) {
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
  void expect_reference_wherever_bytes_live(const std::function<void(EngineOptions&)>& change) {
    using enum HomeKind;
    for (const Placement& placement :
         std::vector<Placement>{{.weights = {{kNvme, 1}}, .state = {{kNvme, 1}}, .gradient = {{kNvme, 1}}},
                                {.weights = {{kHost, 1}}, .state = {{kHost, 1}}, .gradient = {{kHost, 1}}},
                                {.weights = {{kNvmeAndDevice, 0.5}, {kHostAndDevice, 0.5}},
                                .state = {{kNvme, 0.5}, {kHost, 0.5}},
                                .gradient = {{kDevice, 0.5}, {kNvme, 0.5}},
                                .activations = {{kNvme, 1}}},
                                {.state = {{kDevice, 1}}},
                                {.state = {{kDevice, 0.3}, {kNvme, 0.5}, {kDevice, 0.2}}},
                                {.state = {{kDevice, 0.3}, {kNvme, 0.5}, {kDevice, 0.2}}, .activations = {{kHost, 1}}},
                                {.state = {{kNvme, 0.3}, {kDevice, 0.5}, {kHost, 0.2}}, .activations = {{kNvme, 1}}}}) {
      expect_reference_in_all_modes(placement, change);
    }
  }
  // In every mode that `auto` chooses from and replay, with a commit in every step and `change` made to the options.
  void expect_reference_in_all_modes(const Placement& placement, const std::function<void(EngineOptions&)>& change) {
    for (const UpdateMode mode : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
      choose(mode);
      const Course course = expect_reference([&](EngineOptions& options) {
        options.plan.placement = placement;
        if (mode == UpdateMode::kReplay) options.plan.placement.gradient = {};
        options.plan.commit_interval = 1;
        change(options);
      });
      EXPECT_EQ(course.right > 0 && course.wrong > 0, mode != UpdateMode::kDeferred);
      EXPECT_EQ(course.run_again > 0, mode == UpdateMode::kReplay);
      ASSERT_FALSE(HasFailure()) << name_of(mode);
    }
  }
  int turns_of_a_step() const { return (2 * static_cast<int>(model_.visits.size()) - 1) * reference_.micro_batches; }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 7};
  ModelSpec model_ = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  UpdateMode mode_ = UpdateMode::kSpeculative;
  double share_ = 0.6;
  Launch launch_ = run_at_once;
};

constexpr double kNeverClips = 1e9, kAlwaysClips = 1e-3;

// Replay keeps none.
inline HomeShares gradients_at(HomeKind home, UpdateMode mode) {
  return mode == UpdateMode::kReplay ? HomeShares{} : HomeShares{{home, 1}};
}
// Beside state on the device, weights are there already.
inline void put_all_at(HomeKind home, UpdateMode mode, Placement& placement) {
  placement.weights = home == HomeKind::kDevice ? HomeShares{} : HomeShares{{home, 1}};
  placement.state = placement.activations = {{home, 1}};
  placement.gradient = gradients_at(home, mode);
}

}  // namespace sluice::testing
