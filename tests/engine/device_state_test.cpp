// State at home on the device: updated there, moved by commits alone, at home elsewhere in the next run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "tests/engine/engine_fixture.h"
#include "tests/fakes/faulty_queue.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum HomeKind;

class DeviceState : public ::testing::Test {
 protected:
  EngineOptions options(const HomeShares& state = {{kDevice, 1}}) const {
    EngineOptions with = engine_options(folder_, reference_);
    with.plan.placement.state = state;
    with.plan.placement.activations = {{kDevice, 1}};
    return with;
  }
  void step(Engine& engine) const {
    const int64_t number = engine.step() + 1;
    engine.train_step(reference_.learning_rate, toy_compute(model_, number));
  }
  // Weights and state, of chunks as far as `padded` says.
  int64_t record_bytes(const Engine& engine) const {
    return engine.geometry().padded_elements() * (bytes_per_element(reference_.precision, Group::kWeights) +
                                                  bytes_per_element(reference_.precision, Group::kState));
  }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 7, .max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 6, .shape = ToyShape::kBoth}, Precision::kBf16);
  RunRecord expected_ = train_reference(model_, reference_);
};

TEST_F(DeviceState, moves_no_byte_between_commits_and_every_record_with_one) {
  EngineOptions with = options();
  with.plan.commit_interval = 3;
  Engine engine(model_, with, toy_source());
  step(engine);
  // The first unit brings what the store holds.
  EXPECT_EQ(engine.last_lanes()[Lane::kRead].bytes, record_bytes(engine));
  while (engine.step() < reference_.steps) {
    step(engine);
    const StepLanes& lanes = engine.last_lanes();
    const bool commits = (engine.step() - 1) % 3 == 0;  // of the step before
    EXPECT_EQ(lanes[Lane::kRead].bytes, 0);
    EXPECT_EQ(lanes[Lane::kUpload].bytes, 0);
    EXPECT_EQ(lanes[Lane::kDownload].bytes > 0, commits);
    EXPECT_EQ(lanes.bytes(Lane::kWrite, Group::kState) + lanes.bytes(Lane::kWrite, Group::kWeights),
              commits ? record_bytes(engine) : 0);
    EXPECT_GE(lanes[Lane::kUpdate].bytes, record_bytes(engine));
  }
  EXPECT_EQ(engine.digests().state_crc32c, expected_.state_crc32c);
}

TEST_F(DeviceState, is_charged_to_the_device_and_takes_nothing_of_the_hosts_homes) {
  const Plan plan = make_plan(model_, options().plan);
  int64_t state = 0;
  for (const Chunk& chunk : plan.geometry.chunks())
    state += record_layout(plan.options.format(), Group::kState, chunk.elements).bytes;
  int64_t charged = 0;
  for (const UseRow& row : plan.uses) {
    if (row.use == "optimizer state") {
      EXPECT_EQ(row.tier, Tier::kDevice);
      charged += row.bytes;
    }
    EXPECT_FALSE(row.tier == Tier::kHost && row.use == "weights");
  }
  EXPECT_EQ(charged, state);
  EXPECT_EQ(plan.commit_interval, 10);
  for (const MoveRow& row : plan.moves) EXPECT_FALSE(row.link == "nvme read" || row.link == "upload") << row.what;
}

TEST_F(DeviceState, goes_on_in_any_other_home_and_comes_back) {
  const std::vector<HomeShares> homes = {
      {{kDevice, 1}}, {{kNvme, 1}}, {{kNvme, 0.4}, {kDevice, 0.6}}, {{kHost, 1}}, {{kDevice, 0.5}, {kHost, 0.5}},
      {{kDevice, 1}}};
  for (const int interval : {1, 2}) {
    for (size_t run = 0; run < homes.size(); ++run) {
      EngineOptions with = options(homes[run]);
      with.plan.commit_interval = interval;
      if (run > 0) with.open = OpenMode::kResume;
      Engine engine(model_, with, toy_source());
      ASSERT_EQ(engine.step(), static_cast<int64_t>(run));
      step(engine);
      engine.drain();
    }
    EngineOptions with = options();
    with.open = OpenMode::kResume;
    Engine last(model_, with, toy_source());
    const RunRecord record = train_engine(last, model_, reference_);
    EXPECT_EQ(record.weights_crc32c, expected_.weights_crc32c);
    EXPECT_EQ(record.state_crc32c, expected_.state_crc32c);
    EXPECT_EQ(record.steps.back(), expected_.steps.back());
  }
}

TEST_F(DeviceState, that_the_planner_chooses_changes_no_bit) {
  int chosen[3] = {};  // no chunk, some, all
  const StepSpeeds speeds{.machine = {.read_gb_per_s = 0.01,
                                      .write_gb_per_s = 0.01,
                                      .mixed_gb_per_s = 0.01,
                                      .upload_gb_per_s = 0.01,
                                      .download_gb_per_s = 0.01,
                                      .update_ns_per_element = 1,
                                      .checksum_gb_per_s = 1,
                                      .close_gb_per_s = 1},
                          .visits = std::vector<VisitTime>(model_.visits.size())};
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const auto& known : {std::optional<StepSpeeds>(), std::optional(speeds)}) {
      for (const int64_t device : {40, 80, 120, 160, 400}) {
        TempFolder folder;
        EngineOptions options = engine_options(folder, reference_);
        options.plan.update = update;
        options.plan.speeds = known;
        options.plan.device_bytes = device * kKiB;
        Engine engine(model_, options, toy_source());
        EXPECT_EQ(train_engine(engine, model_, reference_), expected_) << name_of(update) << ", " << device;
        const auto& chunks = engine.plan().chunks;
        const auto there = std::ranges::count_if(chunks, &ChunkHomes::updated_on_device);
        ++chosen[there == 0 ? 0 : there < std::ssize(chunks) ? 1 : 2];
      }
    }
  }
  for (const int count : chosen) EXPECT_GT(count, 0);
}

TEST_F(DeviceState, of_a_step_that_threw_is_that_of_the_step_before) {
  for (const int interval : {1, 3}) {
    EngineOptions with = options({{kDevice, 0.6}, {kNvme, 0.4}});
    with.plan.commit_interval = interval;
    Engine engine(model_, with, toy_source());
    for (int bad_turn = 0; bad_turn < 22; bad_turn += 2) {  // of which the first brings the records
      expect_step_to_throw(engine, model_, bad_turn);
      if (bad_turn == 4 || bad_turn == 10) step(engine);
    }
    EXPECT_EQ(train_engine(engine, model_, reference_).state_crc32c, expected_.state_crc32c);
  }
}

TEST_F(DeviceState, that_comes_damaged_is_named_and_never_trained_on) {
  auto faults = std::make_shared<Faults>();
  EngineOptions with = options();
  with.store.make_queue = faulty_queue_factory(faults);
  Engine engine(model_, with, toy_source());
  faults->list = {{.nth = faults->reads + 4, .wrong_byte = 5}};
  try {
    step(engine);
    FAIL() << "trained on";
  } catch (const CorruptionError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk"), HasSubstr("expected"), HasSubstr("sluice-0.swap")));
  }
}

TEST_F(DeviceState, that_an_update_made_infinite_is_not_committed) {
  EngineOptions with = options();
  with.plan.commit_interval = 1;
  {
    Engine engine(model_, with, toy_source());
    step(engine);
    const int64_t number = 2;
    engine.train_step(std::numeric_limits<double>::infinity(), toy_compute(model_, number));
    try {
      engine.drain();
      FAIL() << "committed";
    } catch (const NumericsError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk"), HasSubstr("block p")));
    }
  }
  with.open = OpenMode::kResume;
  Engine resumed(model_, with, toy_source());
  EXPECT_EQ(resumed.step(), 1);
  EXPECT_EQ(train_engine(resumed, model_, reference_).state_crc32c, expected_.state_crc32c);
}

TEST_F(DeviceState, of_more_runs_of_hyper_parameters_than_one_call_takes_has_the_bits_of_the_reference) {
  ModelSpec model = model_;
  ParameterGroup odd{.adam = {.weight_decay = 0}, .learning_rate_factor = 0.5};
  for (int i = 0; i < 40; ++i) {
    const std::string name = fmt::format("b1.part{}", i);
    model.partitions[1].parameters.push_back({name, {100 + i}});
    if (i % 2 == 1) odd.parameters.push_back(name);
  }
  ReferenceOptions reference = reference_;
  reference.groups = {odd};
  TempFolder folder;
  EngineOptions with = engine_options(folder, reference);
  with.plan.placement.state = {{kDevice, 1}};
  with.plan.chunk_elements = 100000;
  Engine engine(model, with, toy_source());
  EXPECT_EQ(train_engine(engine, model, reference), train_reference(model, reference));
}

TEST_F(DeviceState, beside_forced_homes_elsewhere_is_refused) {
  EngineOptions with = options();
  with.plan.placement.weights = {{kHost, 1}};
  try {
    make_plan(model_, with.plan);
    FAIL() << "planned";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sluice.placement.weights"), HasSubstr("host+device")));
  }
}

}  // namespace
}  // namespace sluice::testing
