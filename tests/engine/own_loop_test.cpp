// Steps that somebody else's loop drives: what happens to its turns when a step is given up or left in the middle.
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/ieee_arithmetic.h"
#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/odd_arithmetic.h"

namespace sluice::testing {
namespace {

using enum HomeKind;

class OwnLoop : public Lifecycle {
 protected:
  // A whole step but for its end, as train_step has it; `last` is handed the last turn's Use.
  template <typename Last>
  void turns(Engine& engine, int64_t number, const Last& last) const {
    const Compute compute = toy_compute(model_, number);
    const int sink = static_cast<int>(model_.visits.size()) - 1;
    engine.begin_step(reference_.learning_rate);
    for (int turn = 0; turn < (2 * sink + 1) * reference_.micro_batches; ++turn) {
      const int place = turn / reference_.micro_batches;
      const bool forward = place < sink;
      Use use = engine.enter(forward ? place : 2 * sink - place, forward ? Pass::kForward : Pass::kBackward);
      compute(use);
      if (turn + 1 == (2 * sink + 1) * reference_.micro_batches) last(use);
    }
  }
  void turns(Engine& engine, int64_t number) const {
    turns(engine, number, [](Use&) {});
  }
};

TEST_F(OwnLoop, a_turn_of_a_step_that_was_given_up_is_over_and_ends_no_other) {
  auto running = engine(options());
  step(*running);
  std::optional<Use> use;
  running->begin_step(reference_.learning_rate);
  use.emplace(running->enter(0, Pass::kForward));
  running->abort_step();
  EXPECT_THROW(use->visit(), std::logic_error);
  EXPECT_THROW(use->weights(), std::logic_error);
  running->begin_step(reference_.learning_rate);
  use.emplace(running->enter(0, Pass::kForward));  // the old one goes while the new turn is under way
  EXPECT_EQ(use->visit(), 0);
  EXPECT_THROW(running->enter(0, Pass::kForward), std::logic_error) << "the new turn is under way";
  use.reset();
  running->abort_step();
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, a_use_that_is_kept_from_a_step_given_up_shows_nothing_of_the_turn_that_is_under_way) {
  auto running = engine(options());
  running->begin_step(reference_.learning_rate);
  const Use kept = running->enter(0, Pass::kForward);
  running->abort_step();
  running->begin_step(reference_.learning_rate);
  {
    const Use current = running->enter(0, Pass::kForward);
    EXPECT_EQ(current.visit(), 0);
    EXPECT_THROW(kept.visit(), std::logic_error);
    EXPECT_THROW(kept.weights(), std::logic_error);
  }
  running->abort_step();
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, a_step_that_is_given_up_inside_a_turn_tells_of_the_drive_s_failure) {
  auto faults = std::make_shared<Faults>();
  faults->keep_errors_back = std::make_shared<std::atomic<bool>>(true);
  EngineOptions with = options();
  with.store.make_queue = faulty_queue_factory(faults);
  put_records(with.plan, kNvme);
  auto running = engine(with);
  step(*running);
  running->drain();
  // The first visit's weights come, those of the visits after it fail; which is heard of as the step is given up.
  const int64_t first_visits = running->geometry().partitions()[model_.visits[0].partitions[0]].chunk_count;
  faults->list = {{.op = IoOp::kRead, .nth = faults->reads + first_visits, .times = 1000000, .error_number = EIO}};
  running->begin_step(reference_.learning_rate);
  {
    const Use use = running->enter(0, Pass::kForward);
    *faults->keep_errors_back = false;
    EXPECT_THROW(running->abort_step(), IoError);
  }
  EXPECT_THROW(step(*running), IoError);
  running.reset();
  with.open = OpenMode::kOpen;
  faults->list.clear();
  EXPECT_EQ(finish(*engine(with)).state_crc32c, expected_.state_crc32c);
}

// What was under way is reported later, beside updates and compute that go on meanwhile.
TEST_F(OwnLoop, a_queue_that_cannot_be_polled_for_a_moment_ends_the_step_and_not_the_run) {
  for (int64_t poll = 0; poll < 80; poll += 2) {
    auto faults = std::make_shared<Faults>();
    EngineOptions with = options();
    with.open = OpenMode::kOverwrite;
    with.store.make_queue = faulty_queue_factory(faults);
    put_records(with.plan, kNvme);
    auto running = engine(with);
    step(*running);
    faults->poll_that_throws = faults->polls + poll;
    EXPECT_THROW(
        {
          while (running->step() < reference_.steps) step(*running);
          running->drain();
        },
        IoError)
        << poll;
    EXPECT_THROW(running->drain(), IoError);
    running.reset();
    with.open = OpenMode::kOpen;
    EXPECT_EQ(finish(*engine(with)).state_crc32c, expected_.state_crc32c) << poll;
  }
}

TEST_F(OwnLoop, a_step_does_not_end_inside_a_turn) {
  auto running = engine(options());
  turns(*running, 1, [&](Use&) { EXPECT_THROW(running->finish_step(), std::logic_error); });
  EXPECT_EQ(running->finish_step().step, 1);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, a_step_that_is_to_run_again_can_be_given_up_for_another_batch) {
  const int64_t batch = 3;
  const std::vector<std::function<void(Engine&)>> ways = {
      [](Engine& engine) { engine.abort_step(); },
      [](Engine& engine) { engine.drain(); },
      [&](Engine& engine) { engine.evaluate(1, toy_compute(model_, batch)); },
  };
  for (const auto& give_up : ways) {
    EngineOptions with = options();
    with.plan.update = UpdateMode::kReplay;
    with.plan.placement.state = {{kNvme, 1}};
    auto running = engine(with);
    step(*running);
    turns(*running, 17);  // not the batch of the reference
    ASSERT_TRUE(running->finish_step().run_again);
    give_up(*running);
    EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
  }
}

TEST_F(OwnLoop, an_evaluation_whose_compute_throws_ends_alone) {
  auto running = engine(options());
  step(*running);
  for (int bad_turn = 0; bad_turn < 6; bad_turn += 2) {
    int turn = 0;
    const int64_t number = 2;
    const Compute bad = [&, good = toy_compute(model_, number)](Use& use) {
      if (turn++ == bad_turn) throw std::runtime_error("out of data");
      good(use);
    };
    EXPECT_THROW(running->evaluate(2, bad), std::runtime_error);
    EXPECT_EQ(running->step(), 1);
  }
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

// The first calls change least where one of them is not refused.
TEST_F(OwnLoop, what_is_for_between_steps_is_refused_within_one) {
  auto running = engine(options());
  step(*running);
  std::vector<float> value(1);
  const std::vector<std::function<void()>> calls = {
      [&] { running->commit_beside_next_step(); },
      [&] { running->committed(); },
      [&] { running->written_bytes(); },
      [&] { running->set_progress(17, {}); },
      [&] { running->write_timeline((folder_.path() / "timeline.json").string()); },
      [&] { running->read_master(0, 0, value); },
      [&] { running->digests(); },
      [&] { running->drain(); },
      [&] { running->evaluate(1, toy_compute(model_, running->step())); },
      [&] { running->begin_step(reference_.learning_rate); },
  };
  turns(*running, 2, [&](Use&) {
    for (size_t i = 0; i < calls.size(); ++i) ASSERT_THROW(calls[i](), std::logic_error) << "call " << i;
  });
  for (size_t i = 0; i < calls.size(); ++i) ASSERT_THROW(calls[i](), std::logic_error) << "call " << i;
  EXPECT_EQ(running->finish_step().step, 2);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, what_is_for_within_a_step_is_refused_outside_of_one_and_after_its_last_turn) {
  auto running = engine(options());
  step(*running);
  const auto expect_refusals = [&] {
    EXPECT_THROW(running->finish_step(), std::logic_error);
    EXPECT_THROW(running->enter(0, Pass::kForward), std::logic_error);
  };
  expect_refusals();
  running->evaluate(1, toy_compute(model_, running->step()));
  expect_refusals();
  turns(*running, 2);
  EXPECT_THROW(running->enter(0, Pass::kBackward), std::logic_error) << "it has had its turns";
  EXPECT_THROW(running->enter(0, Pass::kForward), std::logic_error);
  EXPECT_EQ(running->finish_step().step, 2);
  running->begin_step(reference_.learning_rate);
  EXPECT_THROW(running->finish_step(), std::logic_error) << "turns are missing";
  EXPECT_THROW(running->enter(0, Pass::kBackward), std::logic_error) << "its forward comes first";
  EXPECT_THROW(running->enter(0, Pass::kEvaluate), std::logic_error);
  running->abort_step();
  expect_refusals();
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, gradients_of_what_a_turn_has_not_are_refused) {
  auto running = engine(options());
  const std::vector<float> values(4096);
  const auto* gradient = reinterpret_cast<const std::byte*>(values.data());
  const auto contribute_anything = [&](Use& use, int weight) {
    EXPECT_THROW(use.contribute(weight, gradient, DType::kFp32), std::logic_error);
    EXPECT_THROW(use.contribute_part(weight, 0, {gradient, DType::kFp32, 1}), std::logic_error);
    EXPECT_THROW(use.open_gradient(weight), std::logic_error);
  };
  running->begin_step(reference_.learning_rate);
  {
    Use forward = running->enter(0, Pass::kForward);
    contribute_anything(forward, 0);
  }
  running->abort_step();
  turns(*running, 1, [&](Use& use) {
    for (const int weight : {-1, static_cast<int>(use.weights().size())}) contribute_anything(use, weight);
    const int64_t elements = use.weights()[0].parameter->elements;
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{-1, 1}, {0, elements + 1}, {elements, 1}}) {
      EXPECT_THROW(use.contribute_part(0, first, {gradient, DType::kFp32, count}), std::logic_error) << first;
    }
  });
  EXPECT_EQ(running->finish_step().step, 1);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, parameters_that_are_not_there_are_refused) {
  auto running = engine(options());
  step(*running);
  const auto parameters = running->geometry().parameters();
  std::vector<float> value(1);
  for (const int parameter : {-1, static_cast<int>(parameters.size())}) {
    EXPECT_THROW(running->read_master(parameter, 0, value), std::logic_error) << parameter;
    EXPECT_THROW(running->read(parameter, std::as_writable_bytes(std::span(value))), std::logic_error) << parameter;
  }
  EXPECT_THROW(running->read_master(0, -1, value), std::logic_error);
  EXPECT_THROW(running->read_master(0, parameters[0].elements, value), std::logic_error);
  std::vector<std::byte> weights(static_cast<size_t>(2 * parameters[0].elements + 2));
  EXPECT_THROW(running->read(0, weights), std::logic_error);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, progress_told_after_its_step_was_committed_is_committed_by_a_drain) {
  for (const int steps : {0, 2}) {
    const std::string note = "mine";
    {
      auto running = engine(options());
      while (running->step() < steps) step(*running);
      running->digests();  // commits
      running->set_progress(17, std::as_bytes(std::span(note)));
      running->drain();
    }
    EngineOptions with = options();
    with.open = OpenMode::kOpen;
    auto resumed = engine(with);
    EXPECT_EQ(resumed->step(), steps);
    EXPECT_EQ(resumed->committed().data_position, 17);
    EXPECT_EQ(resumed->committed().caller.size(), note.size());
    const std::string other = "ours";
    resumed->set_progress(17, std::as_bytes(std::span(other)));
    resumed->drain();
    EXPECT_TRUE(std::ranges::equal(resumed->committed().caller, std::as_bytes(std::span(other))));
    EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
  }
  auto running = engine(options());
  const auto room = static_cast<size_t>(running->plan().options.progress_bytes);
  EXPECT_THROW(running->set_progress(17, std::vector<std::byte>(room + 1)), std::logic_error);
  EXPECT_NO_THROW(running->set_progress(17, std::vector<std::byte>(room)));
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, progress_of_any_size_that_was_planned_for_comes_back_and_less_room_for_it_is_refused) {
  const std::vector<std::byte> large(1 << 20, std::byte{7});
  EngineOptions with = options();
  with.plan.host_bytes += 8 * kMiB;
  with.plan.progress_bytes = static_cast<int64_t>(large.size());
  {
    auto running = engine(with);
    step(*running);
    running->set_progress(17, large);
    running->drain();
  }
  with.open = OpenMode::kOpen;
  EXPECT_EQ(engine(with)->committed().caller, large);
  const auto is_refused = ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("progress_bytes of 1048576"));
  EngineOptions less = with;
  less.plan.progress_bytes = 1000;
  EXPECT_THAT([&] { engine(less); }, is_refused);
  {
    auto running = engine(with);
    running->set_progress(17, std::span(large).first(10));
    running->drain();
  }
  EXPECT_THAT([&] { engine(less); }, is_refused) << "the commit before the last is read, too";
  with.plan.progress_bytes = (1 << 20) + 1;
  EXPECT_THROW(engine(with), ConfigError);
}

// Weights at home on NVMe with a copy on the device are there until an update changes them.
TEST_F(OwnLoop, what_is_on_the_device_already_is_not_read_again_for_an_evaluation) {
  auto faults = std::make_shared<Faults>();
  EngineOptions with = options();
  with.store.make_queue = faulty_queue_factory(faults);
  put_records(with.plan, kNvme);
  with.plan.placement.weights = {{kNvmeAndDevice, 1}};
  auto running = engine(with);
  step(*running);
  const double loss = running->evaluate(1, toy_compute(model_, 2));  // updates, too
  const int64_t reads = faults->reads;
  EXPECT_EQ(running->evaluate(1, toy_compute(model_, 2)), loss);
  EXPECT_EQ(faults->reads, reads);
  running->set_progress(17, {});
  running->drain();  // has no update to do
  const int64_t reads_after = faults->reads;
  EXPECT_EQ(running->evaluate(1, toy_compute(model_, 2)), loss);
  EXPECT_EQ(faults->reads, reads_after) << "after a drain";
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(OwnLoop, progress_in_the_data_alone_is_committed_by_a_drain) {
  {
    auto running = engine(options());
    step(*running);
    running->set_progress(17, {});
    running->drain();
    running->set_progress(18, {});
    running->drain();
  }
  EngineOptions with = options();
  with.open = OpenMode::kOpen;
  EXPECT_EQ(engine(with)->committed().data_position, 18);
}

TEST_F(OwnLoop, has_the_same_bits_whatever_arithmetic_its_thread_has) {
  auto running = engine(options());
  const OddArithmetic odd;
  for (int64_t number = 1; number <= reference_.steps; ++number) {
    const Compute compute = toy_compute(model_, number);
    running->train_step(reference_.learning_rate, [&](Use& use) {
      const IeeeArithmetic arithmetic;  // the model's own is its business
      compute(use);
    });
  }
  EXPECT_EQ(running->digests().state_crc32c, expected_.state_crc32c);
}

}  // namespace
}  // namespace sluice::testing
