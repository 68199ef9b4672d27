// Steps and updates whose numbers are not finite: skipped, counted, never committed.
#include <gmock/gmock.h>

#include <limits>

#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using enum HomeKind;
using SkippedSteps = Lifecycle;

TEST_F(SkippedSteps, a_non_finite_gradient_skips_the_update_and_leaves_every_bit) {
  for (int interval : {1, 2}) {
    for (HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
      EngineOptions with = options();
      with.plan.commit_interval = interval;
      put_records(with.plan, home);
      auto running = engine(with);
      int64_t number = 1;
      const Compute compute = poisoned(model_, number, {2, 4});
      EXPECT_FALSE(running->train_step(reference_.learning_rate, compute).skipped);
      const Digests before = running->digests();
      number = 2;
      EXPECT_TRUE(running->train_step(reference_.learning_rate, compute).skipped);
      const Digests after = running->digests();
      EXPECT_EQ(before.weights_crc32c, after.weights_crc32c);
      EXPECT_EQ(before.state_crc32c, after.state_crc32c);
      number = 3;
      running->train_step(reference_.learning_rate, compute);
      number = 4;
      EXPECT_TRUE(running->train_step(reference_.learning_rate, compute).skipped);
      EXPECT_EQ(running->applied_steps(), 2);
      const Digests last = running->digests();
      running.reset();
      with.open = OpenMode::kResume;
      auto resumed = engine(with);
      EXPECT_EQ(resumed->committed().step, 4);
      EXPECT_EQ(resumed->committed().applied_steps, 2);
      EXPECT_EQ(resumed->committed().skipped_steps, 2);
      EXPECT_EQ(resumed->digests().state_crc32c, last.state_crc32c);
    }
  }
}

struct HomesOfACommit {
  const char* name;
  HomeKind weights, state;
};
class SkippedCommit : public Lifecycle, public ::testing::WithParamInterface<HomesOfACommit> {};
INSTANTIATE_TEST_SUITE_P(, SkippedCommit,
                         ::testing::Values(HomesOfACommit{"device", kNvmeAndDevice, kDevice},
                                           HomesOfACommit{"host", kHost, kHost},
                                           HomesOfACommit{"weights_on_host_alone", kHost, kNvme}),
                         [](const auto& homes) { return std::string(homes.param.name); });

TEST_P(SkippedCommit, writes_homes_in_memory_that_an_earlier_step_changed) {
  EngineOptions with = options();
  with.plan.commit_interval = 2;
  with.plan.placement.weights = {{GetParam().weights, 1}};
  with.plan.placement.state = {{GetParam().state, 1}};
  Digests one_step;
  {
    TempFolder other;
    EngineOptions alone = with;
    alone.store.folder = other.path();
    auto running = engine(alone);
    step(*running);
    one_step = running->digests();
  }
  auto running = engine(with);
  int64_t number = 1;
  const Compute compute = poisoned(model_, number, {2, 3});
  for (; number <= 3; ++number) running->train_step(reference_.learning_rate, compute);
  running.reset();  // step 2, skipped, was committed during step 3
  with.open = OpenMode::kResume;
  auto resumed = engine(with);
  EXPECT_EQ(resumed->step(), 2);
  const Digests found = resumed->digests();
  EXPECT_EQ(found.weights_crc32c, one_step.weights_crc32c);
  EXPECT_EQ(found.state_crc32c, one_step.state_crc32c);
}

// A commit is due, no update is, and every slot of the update ring has held other chunks since: weights at home on NVMe
// are there as they are, state in host memory is written.
class CommitWithoutUpdates : public Lifecycle {
 protected:
  CommitWithoutUpdates() {
    options_ = options();
    options_.plan.commit_interval = 3;
    options_.plan.placement.weights = {{HomeKind::kNvme, 0.5}, {HomeKind::kNvmeAndDevice, 0.5}};
    options_.plan.placement.state = {{HomeKind::kHost, 1}};
    options_.plan.host_bytes = Planner(model_, options_.plan).smallest_host(options_.plan.device_bytes).value();
    running_ = engine(options_);
    step(*running_);
  }
  void expect_committed_as_after(int good_steps) {
    ReferenceOptions good = reference_;
    good.steps = good_steps;
    const RunRecord expected = train_reference(model_, good);
    running_->drain();
    const Digests digests = running_->digests();
    EXPECT_EQ(digests.weights_crc32c, expected.weights_crc32c);
    EXPECT_EQ(digests.state_crc32c, expected.state_crc32c);
    running_.reset();
    options_.open = OpenMode::kResume;
    EXPECT_EQ(engine(options_)->digests().state_crc32c, expected.state_crc32c);
  }
  void skip(int64_t number) {
    EXPECT_TRUE(running_->train_step(reference_.learning_rate, poisoned(model_, number, {number})).skipped);
  }

  EngineOptions options_;
  std::unique_ptr<Engine> running_;
};

TEST_F(CommitWithoutUpdates, after_an_evaluation) {
  const int64_t number = 1;
  running_->evaluate(1, toy_compute(model_, number));
  expect_committed_as_after(1);
}

// Weights that are on the device are not read again for it; state is written all the same.
TEST_F(CommitWithoutUpdates, in_an_evaluation) {
  const int64_t number = 3;
  step(*running_);
  for (int i = 0; i < 2; ++i) running_->evaluate(1, toy_compute(model_, number));
  skip(number);
  EXPECT_EQ(running_->committed().step, 0);
  running_->evaluate(1, toy_compute(model_, number));
  EXPECT_EQ(running_->committed().step, 3);
  expect_committed_as_after(2);
}

TEST_F(CommitWithoutUpdates, after_a_skipped_step) {
  skip(2);
  expect_committed_as_after(1);
}

TEST_F(CommitWithoutUpdates, after_a_step_that_was_given_up) {
  running_->begin_step(reference_.learning_rate);
  running_->abort_step();
  expect_committed_as_after(1);
}

TEST_F(SkippedSteps, ten_skips_in_a_row_stop_the_run_naming_the_block) {
  auto running = engine(options());
  int64_t number = 1;
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= 20; ++i) all.push_back(i);
  const Compute compute = poisoned(model_, number, all);
  for (; number < 10; ++number) EXPECT_TRUE(running->train_step(0.1, compute).skipped);
  try {
    running->train_step(0.1, compute);
    FAIL();
  } catch (const NumericsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("p2"), HasSubstr("b2.weight"), Not(HasSubstr("fp16"))));
  }
}

TEST_F(SkippedSteps, an_update_that_is_not_finite_is_not_committed) {
  EngineOptions with = options();
  with.plan.placement.state = {{HomeKind::kHost, 1}};  // the device names the block alone
  with.plan.commit_interval = 1;
  auto running = engine(with);
  step(*running);
  const int64_t number = 2;
  running->train_step(std::numeric_limits<double>::infinity(), toy_compute(model_, number));
  try {
    running->drain();
    FAIL();
  } catch (const NumericsError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk"), HasSubstr("parameter")));
  }
  running.reset();
  with.open = OpenMode::kResume;
  auto resumed = engine(with);
  EXPECT_EQ(resumed->step(), 1);
  EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
}

TEST_F(SkippedSteps, an_early_update_that_is_not_finite_is_not_committed) {
  reference_.max_norm = 0;  // every prediction of the scale is right
  expected_ = train_reference(model_, reference_);
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeKind home : {kHost, kNvme}) {
      EngineOptions with = options();
      with.plan.commit_interval = 1;
      with.plan.update = mode;
      with.plan.placement.state = {{home, 1}};
      auto running = engine(with);
      step(*running);
      const int64_t number = 2;
      try {
        running->train_step(std::numeric_limits<double>::infinity(), toy_compute(model_, number));
        running->drain();
        ADD_FAILURE() << "committed, " << name_of(mode);
      } catch (const NumericsError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("made a value of parameter"), HasSubstr("non-finite")));
      }
      running.reset();
      with.open = OpenMode::kResume;
      auto resumed = engine(with);
      EXPECT_EQ(resumed->step(), 1);
      EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
    }
  }
}

TEST_F(SkippedSteps, an_update_that_is_not_finite_names_the_parameter) {
  const Geometry geometry(model_.partitions, 256);
  for (const Parameter& bad : geometry.parameters()) {
    EngineOptions with = options();
    with.plan.placement.state = {{kHost, 1}};  // the device names the block alone
    with.groups = {{.parameters = {bad.name}, .adam = reference_.adam, .learning_rate_factor = 1e60}};
    auto running = engine(with);
    step(*running);
    try {
      running->drain();
      ADD_FAILURE() << "committed";
    } catch (const NumericsError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a value of parameter " + bad.name + " non-finite"));
    }
  }
}

// One thread updates chunk after chunk, the last visit's first.
TEST_F(SkippedSteps, early_updates_of_which_several_are_not_finite_tell_of_the_first) {
  reference_.max_norm = 0;
  EngineOptions with = options();
  with.plan.update = UpdateMode::kReplay;
  with.plan.placement.state = {{kHost, 1}};
  with.update_threads = 1;
  auto running = engine(with);
  const int64_t number = 1;
  EXPECT_THAT(message_of<NumericsError>(
                  [&] { running->train_step(std::numeric_limits<double>::infinity(), toy_compute(model_, number)); }),
              HasSubstr("a value of parameter b4.bias non-finite"));
}

// A gradient whose square is infinite: masters stay finite, of moments the one that sums squares does not.
TEST_F(SkippedSteps, an_update_that_makes_a_moment_alone_non_finite_names_the_parameter) {
  reference_.max_norm = 0;
  for (const DType moments : {DType::kFp32, DType::kBf16}) {
    for (const AdamKind kind : {AdamKind::kAdamW, AdamKind::kAdagrad}) {
      reference_.moments = moments;
      reference_.adam.kind = kind;
      EngineOptions with = options();
      with.plan.placement.state = {{kHost, 1}};  // the device names the block alone
      auto running = engine(with);
      const int64_t number = 1;
      running->train_step(reference_.learning_rate, [&, good = toy_compute(model_, number)](Use& use) {
        good(use);
        if (use.pass() == Pass::kBackward && use.visit() == 2) use.open_gradient(0)[0] = 1e25f;
      });
      EXPECT_THAT(message_of<NumericsError>([&] { running->drain(); }),
                  HasSubstr("a value of parameter b2.bias non-finite"))
          << name_of(moments) << ", kind " << static_cast<int>(kind);
    }
  }
}

}  // namespace
}  // namespace sluice::testing
