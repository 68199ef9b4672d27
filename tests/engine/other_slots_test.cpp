// Updates in the backward of runs that commit rarely: from one slot in host memory to another.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "tests/engine/update_modes_fixture.h"

namespace sluice::testing {
namespace {

using enum HomeKind;

class OtherSlots : public UpdateModes {
 protected:
  OtherSlots() {
    reference_.steps = 24;
    reference_.max_norm = kNeverClips;
  }
  EngineOptions rarely(const TempFolder& folder, int commit_interval = 3) const {
    EngineOptions with = engine_options(folder, reference_);
    with.plan.update = UpdateMode::kAuto;
    with.plan.speculated_share = 0.6;
    with.plan.commit_interval = commit_interval;
    with.plan.placement = {.weights = {{kHost, 1}}, .state = {{kHost, 1}}};
    return with;
  }
  // About one step in so many exceeds it.
  double norm_of_one_in(int steps) const {
    ReferenceOptions unclipped = reference_;
    unclipped.max_norm = 0;
    std::vector<double> norms;
    for (const StepRecord& step : train_reference(model_, unclipped).steps) norms.push_back(step.grad_norm);
    std::ranges::sort(norms, std::greater());
    return norms[norms.size() / static_cast<size_t>(steps)];
  }
  static int moving(const Plan& plan) {
    int chunks = 0;
    for (int c = 0; c < std::ssize(plan.chunks); ++c) {
      EXPECT_EQ(plan.has_other_slot(c), plan.speculated(c));
      chunks += plan.has_other_slot(c) ? 1 : 0;
    }
    return chunks;
  }
  std::vector<float> masters_of(Engine& engine) const {
    std::vector<float> values(static_cast<size_t>(engine.plan().geometry.parameters().front().elements));
    engine.read_master(0, 0, values);
    return values;
  }
  static void expect_digests(Engine& engine, const RunRecord& expected) {
    const Digests digests = engine.digests();
    EXPECT_EQ(digests.weights_crc32c, expected.weights_crc32c);
    EXPECT_EQ(digests.state_crc32c, expected.state_crc32c);
  }
};

TEST_F(OtherSlots, are_for_what_is_at_home_in_host_memory_as_far_as_it_has_room) {
  const EngineOptions with = rarely(folder_);
  PlanOptions options = with.plan;
  const Plan ample = make_plan(model_, options);
  const int all = moving(ample);
  EXPECT_GT(all, 0);
  options.host_bytes = ample.host_arena_bytes + ample.table_bytes - ample.record_bytes(0, Group::kState);
  const Plan scarce = make_plan(model_, options);
  EXPECT_GT(moving(scarce), 0);
  EXPECT_LT(moving(scarce), all);
  EXPECT_LE(scarce.host_arena_bytes + scarce.table_bytes, options.host_bytes);
  options.host_bytes = with.plan.host_bytes;
  options.placement.state = {{kNvme, 1}};
  EXPECT_EQ(moving(make_plan(model_, options)), 0);
  options.placement.state = {{kHost, 1}};
  options.commit_interval = 1;
  EXPECT_TRUE(make_plan(model_, options).other_slots.empty()) << "the committed slots have what they were";
}

TEST_F(OtherSlots, change_no_bit_however_rarely_a_run_commits_and_wherever_the_rest_lives) {
  for (const bool clips : {false, true}) {
    if (clips) reference_.max_norm = norm_of_one_in(4);
    for (const Placement& placement : std::vector<Placement>{
             {.weights = {{kHost, 1}}, .state = {{kHost, 1}}, .gradient = {{kHost, 1}}},
             {.weights = {{kHostAndDevice, 1}}, .state = {{kHost, 1}}, .gradient = {{kDevice, 1}}},
             {.weights = {{kHost, 1}}, .state = {{kHost, 1}}, .gradient = {{kNvme, 1}}, .activations = {{kNvme, 1}}},
             {.state = {{kDevice, 0.4}, {kHost, 0.6}}}}) {
      for (const int interval : {2, 3, 10, 100}) {
        choose(UpdateMode::kAuto);
        const Course course = expect_reference([&](EngineOptions& o) {
          o.plan.placement = placement;
          o.plan.commit_interval = interval;
          EXPECT_GT(moving(make_plan(model_, o.plan)), 0);
        });
        EXPECT_GT(course.right, 0);
        EXPECT_EQ(course.wrong > 0, clips);
        ASSERT_FALSE(HasFailure()) << interval;
      }
    }
  }
}

TEST_F(OtherSlots, undo_what_a_skipped_step_has_updated) {
  Digests digests[2];
  for (const bool waits : {false, true}) {
    TempFolder folder;
    EngineOptions with = rarely(folder);
    if (waits) with.plan.update = UpdateMode::kDeferred;
    Engine engine(model_, with, toy_source());
    int64_t number = 1;
    int wrong = 0;
    const Compute compute = poisoned(model_, number, {5, 6, 18});
    for (; number <= reference_.steps; ++number) {
      const StepEnd end = engine.train_step(reference_.learning_rate, compute);
      EXPECT_EQ(end.skipped, number == 5 || number == 6 || number == 18);
      wrong += end.speculated == Speculated::kWrong ? 1 : 0;
    }
    EXPECT_EQ(wrong > 1, !waits);
    digests[waits] = engine.digests();
  }
  EXPECT_EQ(digests[0].weights_crc32c, digests[1].weights_crc32c);
  EXPECT_EQ(digests[0].state_crc32c, digests[1].state_crc32c);
}

// In its middle some of its updates are done and others are not.
TEST_F(OtherSlots, undo_what_a_step_that_throws_has_updated) {
  const RunRecord expected = train_reference(model_, reference_);
  TempFolder folder;
  Engine engine(model_, rarely(folder), toy_source());
  for (int bad_turn = 0; engine.step() < reference_.steps - 1; bad_turn = (bad_turn + 1) % turns_of_a_step()) {
    if (engine.step() > 3) expect_step_to_throw(engine, model_, bad_turn);
    if (bad_turn % 3 == 0) continue;  // ... or two of them in a row
    engine.train_step(reference_.learning_rate, toy_compute(model_, engine.step() + 1));
  }
  const RunRecord record = train_engine(engine, model_, reference_);
  EXPECT_EQ(record.weights_crc32c, expected.weights_crc32c);
  EXPECT_EQ(record.state_crc32c, expected.state_crc32c);
}

// Beside a run whose updates wait.
TEST_F(OtherSlots, serve_whatever_is_asked_between_two_steps) {
  reference_.max_norm = norm_of_one_in(4);
  const RunRecord expected = train_reference(model_, reference_);
  for (const HomeKind weights : {kHost, kHostAndDevice}) {
    TempFolder folder, other;
    EngineOptions with = rarely(folder, 10), waits = rarely(other, 10);
    with.plan.placement.weights = waits.plan.placement.weights = {{weights, 1}};
    waits.plan.update = UpdateMode::kDeferred;
    Engine engine(model_, with, toy_source()), waiting(model_, waits, toy_source());
    const auto both = [&](auto ask) {
      const auto answer = ask(engine);
      EXPECT_EQ(answer, ask(waiting)) << "after step " << engine.step();
    };
    while (engine.step() < reference_.steps) {
      const int64_t number = engine.step() + 1;
      both([&](Engine& e) { return e.train_step(reference_.learning_rate, toy_compute(model_, number)).loss; });
      if (number % 5 == 1) both([&](Engine& e) { return e.evaluate(1, toy_compute(model_, number)); });
      if (number % 5 == 2) both([](Engine& e) { return e.digests().state_crc32c; });
      if (number % 5 == 3) both([](Engine& e) { return e.commit_beside_next_step(), 0; });
      if (number % 5 == 4) both([](Engine& e) { return e.drain(), e.committed().step; });
      if (number % 7 == 0) both([this](Engine& e) { return masters_of(e); });
    }
    EXPECT_GT(moving(engine.plan()), 0);
    expect_digests(engine, expected);
  }
}

TEST_F(OtherSlots, are_not_needed_by_a_run_that_is_left_and_goes_on) {
  for (const double max_norm : {kNeverClips, norm_of_one_in(4)}) {
    reference_.max_norm = max_norm;
    const RunRecord expected = train_reference(model_, reference_);
    for (int stop = 1; stop < reference_.steps; stop += 2) {
      TempFolder folder;
      EngineOptions with = rarely(folder);
      {
        Engine engine(model_, with, toy_source());
        for (int64_t number = 1; number <= stop; ++number)
          engine.train_step(reference_.learning_rate, toy_compute(model_, number));
      }
      with.open = OpenMode::kResume;
      Engine resumed(model_, with, toy_source());
      EXPECT_EQ(resumed.step(), (stop - 1) / 3 * 3) << "a commit is done in the step after it";
      EXPECT_EQ(train_engine(resumed, model_, reference_).state_crc32c, expected.state_crc32c) << stop;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
