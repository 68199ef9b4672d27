// What happens around steps: resume, aborted steps, evaluation, traces.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/engine/lifecycle_fixture.h"
#include "tests/fakes/faulty_queue.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Lifecycle, a_resumed_run_ends_like_one_that_never_stopped_whatever_homes_it_moves_to) {
  for (int interval : {1, 2, 4}) {
    for (int stop : {0, 1, 3, 5}) {
      EngineOptions first = options();
      first.plan.commit_interval = interval;
      first.plan.placement.state = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
      if (stop % 2 == 1) first.plan.placement.state.front().home = HomeKind::kDevice;
      {
        auto running = engine(first);
        for (int i = 0; i < stop; ++i) step(*running);
      }  // not drained: what was committed on the way counts
      EngineOptions second = options();
      second.open = OpenMode::kResume;
      second.plan.chunk_elements = 0;  // the store's
      second.plan.placement.weights = {{HomeKind::kHostAndDevice, 1}};
      if (stop == 1) second.plan.placement.state = {{HomeKind::kNvme, 0.7}, {HomeKind::kDevice, 0.3}};
      if (stop == 3) second.plan.placement.state = {{HomeKind::kNvme, 1}};
      auto resumed = engine(second);
      EXPECT_LE(resumed->step(), stop);
      EXPECT_GE(resumed->step(), std::max(0, stop - interval));
      const RunRecord record = finish(*resumed);
      EXPECT_EQ(record.weights_crc32c, expected_.weights_crc32c) << "interval " << interval << " stop " << stop;
      EXPECT_EQ(record.state_crc32c, expected_.state_crc32c);
    }
  }
}

TEST_F(Lifecycle, a_plan_made_before_is_taken_where_it_was_asked_of_the_same_options) {
  const auto chunk_elements = [this](const PlanOptions& asked) {
    EngineOptions with = options();
    with.open = OpenMode::kOverwrite;
    PlanOptions other = asked;
    other.chunk_elements = 512;
    with.made_plan = MadePlan{asked, make_plan(model_, other)};
    return engine(with)->geometry().chunk_elements();
  };
  const PlanOptions asked = options().plan;
  const int64_t searched = make_plan(model_, asked).geometry.chunk_elements();
  ASSERT_NE(searched, 512);
  EXPECT_EQ(chunk_elements(asked), 512);
  PlanOptions others = asked;
  others.host_bytes += 4096;
  EXPECT_EQ(chunk_elements(others), searched) << "of another budget";
}

TEST_F(Lifecycle, a_drained_step_is_what_a_resume_finds) {
  EngineOptions with = options();
  with.plan.commit_interval = 10;
  const std::string note = "mine";
  {
    auto running = engine(with);
    for (int i = 0; i < 3; ++i) step(*running);
    running->set_progress(17, std::as_bytes(std::span(note)));
    running->drain();
  }
  with.open = OpenMode::kResume;
  auto resumed = engine(with);
  EXPECT_EQ(resumed->step(), 3);
  EXPECT_EQ(resumed->committed().data_position, 17);
  EXPECT_EQ(resumed->committed().applied_steps, 3);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(resumed->committed().caller.data()), 4), note);
  EXPECT_EQ(finish(*resumed).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, a_commit_that_is_asked_for_comes_beside_the_next_step_and_once) {
  EngineOptions with = options();
  with.plan.commit_interval = 100;
  put_records(with.plan, HomeKind::kHost);
  auto running = engine(with);
  for (int i = 0; i < 3; ++i) step(*running);
  EXPECT_EQ(running->committed().step, 0);
  running->commit_beside_next_step();
  EXPECT_EQ(running->committed().step, 0);
  step(*running);
  EXPECT_EQ(running->committed().step, 3);
  step(*running);
  step(*running);
  EXPECT_EQ(running->committed().step, 3);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, a_commit_that_is_asked_for_where_nothing_is_new_is_none) {
  EngineOptions with = options();
  with.plan.commit_interval = 100;
  put_records(with.plan, HomeKind::kHost);
  auto running = engine(with);
  step(*running);
  running->drain();
  running->commit_beside_next_step();
  for (int i = 0; i < 2; ++i) step(*running);
  EXPECT_EQ(running->committed().step, 1);
}

TEST_F(Lifecycle, a_plan_tells_to_the_byte_what_steps_write_to_the_drives) {
  for (const HomeKind home : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
    for (const int interval : {1, 3}) {
      EngineOptions with = options();
      with.plan.commit_interval = interval;
      with.plan.progress_bytes = 0;
      put_records(with.plan, home);
      with.plan.placement.gradient = with.plan.placement.activations = {{home, 1}};
      auto running = engine(with);
      while (running->step() < 3) step(*running);
      running->drain();
      const int64_t before = running->written_bytes();
      while (running->step() < 9) step(*running);
      running->drain();  // six steps and their commits
      // Thirds of a byte are rounded.
      EXPECT_NEAR(static_cast<double>(running->written_bytes() - before), 6 * running->plan().written_bytes_per_step,
                  1e-6)
          << "interval " << interval;
    }
  }
}

TEST_F(Lifecycle, a_plan_tells_what_steps_write_besides_whose_updates_in_the_backward_are_undone) {
  for (const UpdateMode mode : {UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeKind activations : {HomeKind::kHost, HomeKind::kNvme}) {
      EngineOptions with = options();
      with.plan.update = mode;
      with.max_norm = 1e-3;  // every step is clipped
      with.plan.progress_bytes = 0;
      put_records(with.plan, HomeKind::kNvme);
      with.plan.placement.activations = {{activations, 1}};
      auto running = engine(with);
      while (running->step() < 3) step(*running);
      running->drain();
      const int64_t before = running->written_bytes();
      while (running->step() < 9) ASSERT_EQ(step(*running).speculated, Speculated::kWrong);
      running->drain();
      const Plan& plan = running->plan();
      EXPECT_GT(plan.undone_bytes, 0);
      EXPECT_NEAR(static_cast<double>(running->written_bytes() - before),
                  6 * (plan.written_bytes_per_step + static_cast<double>(plan.undone_bytes)), 1e-6)
          << name_of(mode);
    }
  }
}

TEST_F(Lifecycle, parameters_of_a_chunk_come_from_one_reading_of_it) {
  const auto faults = std::make_shared<Faults>();
  EngineOptions with = options();
  with.store.make_queue = faulty_queue_factory(faults);
  put_records(with.plan, HomeKind::kNvme);
  auto running = engine(with);
  step(*running);
  running->drain();
  const int64_t before = faults->reads;
  const auto parameters = running->geometry().parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<float> values(static_cast<size_t>(parameters[p].elements));
    running->read_master(static_cast<int>(p), 0, values);
  }
  EXPECT_LE(faults->reads - before, 2 * static_cast<int64_t>(running->geometry().chunks().size()));
}

TEST_F(Lifecycle, a_parameter_is_read_alike_before_and_after_digests) {
  EngineOptions with = options();
  put_records(with.plan, HomeKind::kNvme);
  auto running = engine(with);
  step(*running);
  const auto parameters = running->geometry().parameters();
  ASSERT_GT(running->geometry().chunks().size(), 8u) << "more than the ring holds at once";
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<std::byte> before(static_cast<size_t>(2 * parameters[p].elements)), after(before.size());
    running->read(static_cast<int>(p), before);
    running->digests();
    running->read(static_cast<int>(p), after);
    EXPECT_EQ(before, after) << parameters[p].name;
  }
}

// What creation, digests and reads use of the update ring fits into it, so that they leave alone what lies behind.
class RingAsScratch : public Lifecycle {
 protected:
  void expect_digests_of_the_reference(const EngineOptions& with) {
    expected_ = train_reference(model_, reference_);
    auto running = engine(with);
    for (int i = 0; i < 2; ++i) {
      step(*running);
      running->digests();
    }
    const RunRecord end = finish(*running);
    EXPECT_EQ(end.weights_crc32c, expected_.weights_crc32c);
    EXPECT_EQ(end.state_crc32c, expected_.state_crc32c);
  }
};

TEST_F(RingAsScratch, has_room_for_the_largest_chunk_where_the_last_is_small) {
  model_ = toy_model({.visits = 3, .elements = 3000}, Precision::kBf16);
  EngineOptions with = options();
  with.plan.chunk_elements = 4096;
  put_records(with.plan, HomeKind::kNvme);
  const Plan plan = make_plan(model_, with.plan);
  ASSERT_GT(plan.record_bytes(0, Group::kWeights), plan.record_bytes(2, Group::kWeights));
  expect_digests_of_the_reference(with);
}

TEST_F(RingAsScratch, ends_where_the_homes_behind_the_ring_begin) {
  EngineOptions with = options();
  with.plan.placement = {.weights = {{HomeKind::kHost, 1}},
                         .state = {{HomeKind::kNvme, 1}},
                         .gradient = {{HomeKind::kHost, 1}},
                         .activations = {{HomeKind::kDevice, 1}}};
  with.plan.host_bytes = Planner(model_, with.plan).smallest_host(with.plan.device_bytes).value();
  const Plan least = make_plan(model_, with.plan);
  with.plan.host_bytes += 3 * least.host_update.bytes;
  const Plan plan = make_plan(model_, with.plan);
  ASSERT_EQ(plan.host_staging.bytes + plan.host_gradients.bytes + plan.host_boundary.bytes, 0);
  ASSERT_LT(plan.host_update.bytes / least.host_update.bytes, 8) << "so much that any number of parts fits";
  expect_digests_of_the_reference(with);
}

TEST_F(Lifecycle, resume_without_a_store_starts_from_the_beginning_and_says_so) {
  EngineOptions with = options();
  with.open = OpenMode::kResume;
  std::string said;
  with.log = [&said](LogLevel, const std::string& message) { said += message; };
  auto running = engine(with);
  EXPECT_THAT(said, HasSubstr("starting from the beginning"));
  EXPECT_EQ(finish(*running), expected_);
}

TEST_F(Lifecycle, resume_of_a_store_that_never_came_to_a_step_makes_it_anew) {
  engine(options());
  EngineOptions with = options();
  with.open = OpenMode::kResume;
  int made = 0;
  with.on_new_store = [&made] { ++made; };
  {
    auto running = engine(with);
    EXPECT_EQ(made, 1);
    step(*running);
    running->drain();
  }
  EXPECT_EQ(engine(with)->step(), 1);
  EXPECT_EQ(made, 1);
}

TEST_F(Lifecycle, resume_from_the_first_values_that_are_asked_for_by_their_step_makes_nothing_anew) {
  {
    auto running = engine(options());
    step(*running);
    running->drain();
  }
  EngineOptions with = options();
  with.open = OpenMode::kResume;
  with.from_step = 0;
  with.on_new_store = [] { FAIL() << "the store that was there is gone"; };
  auto running = engine(with);
  EXPECT_EQ(running->step(), 0);
  EXPECT_EQ(finish(*running), expected_);
}

TEST_F(Lifecycle, a_new_store_is_told_of_when_the_old_one_is_gone_and_not_when_it_is_refused) {
  EngineOptions with = options();
  with.open = OpenMode::kOverwrite;
  int made = 0;
  with.on_new_store = [&] {
    ++made;
    throw std::runtime_error("killed here");
  };
  {
    auto running = engine(options());
    step(*running);
    running->drain();
    EXPECT_THROW(engine(with), ConfigError) << "the store is in use";
    EXPECT_EQ(made, 0);
  }
  EXPECT_THROW(engine(with), std::runtime_error);
  EXPECT_EQ(made, 1);
  with.open = OpenMode::kOpen;
  EXPECT_THROW(engine(with), ConfigError) << "nothing of the old run can be taken for the new one's";
}

TEST_F(Lifecycle, a_store_to_be_opened_that_is_missing_or_empty_is_refused_and_none_is_made) {
  EngineOptions with = options();
  with.open = OpenMode::kOpen;
  const auto refusal = [&] {
    try {
      engine(with);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no committed step"), HasSubstr("start over with a new store")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  const auto file = folder_.path() / "sluice-0.swap";
  std::ofstream(file).close();
  EXPECT_THAT(refusal(), HasSubstr("no committed step"));
  EXPECT_EQ(std::filesystem::file_size(file), 0u);
  step(*engine(options()));
  EXPECT_EQ(engine(with)->step(), 0);  // the step is not committed yet, the creation is
}

TEST_F(Lifecycle, a_store_that_is_there_is_refused_naming_both_ways_out) {
  engine(options());
  EngineOptions with = options();
  with.open = OpenMode::kCreate;
  try {
    engine(with);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("open the store again"), HasSubstr("start over with a new store")));
  }
}

TEST_F(Lifecycle, evaluation_between_steps_changes_no_bit) {
  using enum HomeKind;
  struct Case {
    HomeKind weights, state;
    int commit_interval = 1;
  };
  for (const auto& [weights, state, interval] :
       {Case{kNvme, kAuto}, {kHostAndDevice, kAuto}, {kHostAndDevice, kDevice}, {kNvmeAndDevice, kHost, 3}}) {
    EngineOptions with = options();
    with.plan.commit_interval = interval;
    with.plan.placement.weights = {{weights, 1}};
    with.plan.placement.state = {{state, 1}};
    if (weights == kNvme) with.plan.placement.activations = with.plan.placement.gradient = {{weights, 1}};
    auto running = engine(with);
    RunRecord record;
    while (running->step() < reference_.steps) {
      const StepEnd end = step(*running);
      record.steps.emplace_back(end);
      const int64_t next = end.step + 1;
      // The loss that the next step will report, from its own data.
      const double loss = running->evaluate(reference_.micro_batches, toy_compute(model_, next));
      if (end.step < reference_.steps) {
        EXPECT_EQ(loss, expected_.steps[static_cast<size_t>(end.step)].loss);
      }
      running->evaluate(1, toy_compute(model_, next));
    }
    EXPECT_EQ(record.steps, expected_.steps);
    EXPECT_EQ(running->digests().state_crc32c, expected_.state_crc32c);
  }
}

TEST_F(Lifecycle, what_follows_a_drain_computes_with_the_weights_that_it_has_updated) {
  using enum HomeKind;
  for (const HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
    EngineOptions with = options();
    with.plan.placement.weights = {{weights, 1}};
    auto running = engine(with);
    step(*running);
    running->drain();
    EXPECT_EQ(running->evaluate(reference_.micro_batches, toy_compute(model_, 2)), expected_.steps[1].loss);
    step(*running);
    running->drain();
    EXPECT_EQ(step(*running).loss, expected_.steps[2].loss) << name_of(weights);
  }
}

TEST_F(Lifecycle, an_evaluation_of_fewer_micro_batches_than_a_step_has_is_the_mean_of_those_alone) {
  reference_.micro_batches = 4;
  auto running = engine(options());
  const std::vector<double> losses = {1, 2, 6, 7};  // by micro-batch
  std::vector<int> seen;
  const Compute compute = [&](Use& use) {
    EXPECT_EQ(use.pass(), Pass::kEvaluate);
    if (!model_.visits[static_cast<size_t>(use.visit())].gives.empty()) return;
    seen.push_back(use.micro_batch());
    use.report_loss(&losses[static_cast<size_t>(use.micro_batch())]);
  };
  EXPECT_EQ(running->evaluate(1, compute), 1);
  EXPECT_EQ(running->evaluate(3, compute), 3);
  EXPECT_EQ(running->evaluate(4, compute), 4);
  EXPECT_EQ(seen, (std::vector<int>{0, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_THROW(running->evaluate(5, compute), std::logic_error);
  EXPECT_THROW(running->evaluate(0, compute), std::logic_error);
}

TEST_F(Lifecycle, a_step_that_throws_never_happened) {
  auto running = engine(options());
  step(*running);
  step(*running);
  for (int bad_turn = 0; bad_turn < 18; bad_turn += 3) {
    expect_step_to_throw(*running, model_, bad_turn);
    EXPECT_EQ(running->step(), 2);
  }
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, a_step_that_is_given_up_inside_a_turn_never_happened) {
  const std::unique_ptr<Engine> running = engine(options());
  step(*running);
  for (int turns = 0; turns < 6; ++turns) {
    running->begin_step(reference_.learning_rate);
    for (int turn = 0; turn < turns; ++turn) running->enter(turn / reference_.micro_batches, Pass::kForward);
    const Use use = running->enter(turns / reference_.micro_batches, Pass::kForward);
    running->abort_step();
  }
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, a_turn_out_of_order_is_an_error_that_names_both_visits) {
  auto running = engine(options());
  running->begin_step(0.1);
  try {
    running->enter(3, Pass::kForward);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("v3"), HasSubstr("v0")));
  }
  running->abort_step();
  EXPECT_EQ(finish(*running), expected_);
}

TEST_F(Lifecycle, two_engines_live_in_one_process_and_do_not_meet) {
  TempFolder other_folder;
  EngineOptions other = options();
  other.store.folder = other_folder.path();
  other.plan.placement.state = {{HomeKind::kNvme, 1}};
  auto first = engine(options()), second = engine(other);
  for (int i = 0; i < 3; ++i) {
    step(*first);
    step(*second);
  }
  EXPECT_EQ(finish(*second).state_crc32c, expected_.state_crc32c);
  EXPECT_EQ(finish(*first).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, a_trace_shows_every_lane_of_every_step) {
  EngineOptions with = options();
  with.plan.placement.weights = with.plan.placement.state = {{HomeKind::kNvme, 1}};
  with.trace_path = (folder_.path() / "trace.json").string();
  {
    auto running = engine(with);
    step(*running);
    step(*running);
  }
  std::ifstream file(with.trace_path);
  const std::string trace((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* lane : {"read", "write", "upload", "download", "compute", "update"}) {
    EXPECT_THAT(trace, HasSubstr(fmt::format("\"{}\"", lane)));
  }
  for (const char* hop : {"swap_in", "swap_out", "update", "verify", "compute v3 #1", "close", "clip", "commit"}) {
    EXPECT_THAT(trace, HasSubstr(hop));
  }
  int clips = 0;
  for (size_t at = trace.find("\"clip"); at != std::string::npos; at = trace.find("\"clip", at + 1)) ++clips;
  EXPECT_EQ(clips, 2) << "one a step";
}

TEST_F(Lifecycle, parameters_read_between_steps_are_those_of_the_last_step) {
  auto running = engine(options());
  const int parameter = running->geometry().find_parameter("b1.weight");
  const int64_t elements = running->geometry().parameters()[parameter].elements;
  std::vector<float> master(static_cast<size_t>(elements));
  running->read_master(parameter, 0, master);
  for (int64_t i = 0; i < elements; ++i) ASSERT_EQ(master[static_cast<size_t>(i)], toy_initial("b1.weight", i));
  step(*running);
  std::vector<float> tail(7);
  running->read_master(parameter, elements - 7, tail);
  EXPECT_NE(tail[0], master[static_cast<size_t>(elements - 7)]);
  EXPECT_EQ(finish(*running).state_crc32c, expected_.state_crc32c);
}

TEST_F(Lifecycle, moments_in_bf16_are_rounded_by_one_seed_in_every_group) {
  reference_.moments = DType::kBf16;
  reference_.max_norm = 0;
  reference_.adam.rounding_seed = 5;
  const Digests alone = [&] {
    const RunRecord record = train_reference(model_, reference_);
    return Digests{.weights_crc32c = record.weights_crc32c, .state_crc32c = record.state_crc32c};
  }();
  EngineOptions with = options();
  // A group that differs in nothing changes nothing.
  with.groups = {{.parameters = {model_.partitions[1].parameters[0].name}, .adam = reference_.adam}};
  with.groups[0].adam.rounding_seed = 0;  // as configurations leave it
  auto running = engine(with);
  while (running->step() < reference_.steps) step(*running);
  EXPECT_EQ(running->digests().state_crc32c, alone.state_crc32c);
}

}  // namespace
}  // namespace sluice::testing
