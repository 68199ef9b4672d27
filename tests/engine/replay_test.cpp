// One resource's hops alone: what they move, and that steps go on afterwards.
#include <fmt/format.h>

#include <array>
#include <stdexcept>
#include <tuple>

#include "core/clock.h"
#include "tests/engine/engine_fixture.h"

namespace sluice::testing {
namespace {

constexpr std::array kLaneGroups = {LaneGroup::kNvme, LaneGroup::kCpu, LaneGroup::kCopies, LaneGroup::kCompute};

class Replays : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> engine(const HomeShares& weights, const HomeShares& state, int commit_interval,
                                 UpdateMode update = UpdateMode::kDeferred) const {
    EngineOptions options = engine_options(folder_, reference_);
    options.plan.placement.weights = weights;
    options.plan.placement.state = state;
    // With weights on NVMe everything is.
    if (weights.size() == 1 && weights[0].home == HomeKind::kNvme) options.plan.placement.activations = weights;
    if (update != UpdateMode::kReplay) options.plan.placement.gradient = weights;
    if (state[0].home == HomeKind::kDevice || weights[0].home == HomeKind::kNvmeAndDevice) {
      options.plan.placement.gradient = {};
    }
    options.plan.commit_interval = commit_interval;
    options.plan.update = update;
    return std::make_unique<Engine>(model_, options, toy_source());
  }
  void step(Engine& engine) const {
    const int64_t number = engine.step() + 1;
    engine.train_step(reference_.learning_rate, toy_compute(model_, number));
  }
  Replay replay(Engine& engine, LaneGroup resource) const {
    const int64_t number = engine.step();
    return engine.replay(resource, toy_compute(model_, number));
  }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 6, .max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
};

TEST_F(Replays, move_what_a_step_in_the_middle_of_training_moves_and_nothing_of_other_lanes) {
  const HomeShares host = {{HomeKind::kHost, 1}}, nvme = {{HomeKind::kNvme, 1}};
  const HomeShares halves = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
  const HomeShares kept = {{HomeKind::kNvmeAndDevice, 1}}, thirds = {{HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.7}};
  for (const auto& [weights, state] :
       {std::pair(host, nvme), std::pair(nvme, nvme), std::pair(halves, halves), std::pair(kept, thirds)}) {
    auto running = engine(weights, state, 1);
    for (int i = 0; i < 4; ++i) step(*running);
    const StepLanes whole = running->last_lanes();
    const auto bytes = [](const StepLanes& lanes) {
      return std::array{lanes[Lane::kRead].bytes,     lanes[Lane::kWrite].bytes,   lanes[Lane::kUpload].bytes,
                        lanes[Lane::kDownload].bytes, lanes[Lane::kCompute].bytes, lanes[Lane::kUpdate].bytes};
    };
    const auto all = bytes(whole);
    EXPECT_EQ(bytes(replay(*running, LaneGroup::kNvme).lanes), (std::array{all[0], all[1], 0L, 0L, 0L, 0L}));
    EXPECT_EQ(bytes(replay(*running, LaneGroup::kCpu).lanes), (std::array{0L, 0L, 0L, 0L, 0L, all[5]}));
    EXPECT_EQ(bytes(replay(*running, LaneGroup::kCopies).lanes), (std::array{0L, 0L, all[2], all[3], 0L, 0L}));
    const int64_t began_ns = now_ns();
    const Replay compute = replay(*running, LaneGroup::kCompute);
    EXPECT_LE(compute.ms, static_cast<double>(now_ns() - began_ns) / 1e6);
    EXPECT_EQ(bytes(compute.lanes), (std::array{0L, 0L, 0L, 0L, all[4], 0L}));
    EXPECT_GT(compute.lanes[Lane::kCompute].busy_ms, 0);
    EXPECT_EQ(compute.lanes[Lane::kCompute].exposed_ms, 0);
    const LaneUse reads = replay(*running, LaneGroup::kNvme).lanes[Lane::kRead];
    EXPECT_EQ(reads.exposed_ms, reads.busy_ms);  // no compute hides any of it
  }
}

TEST_F(Replays, of_early_updates_move_what_a_step_moves_whose_prediction_was_right) {
  reference_.max_norm = 0;
  const HomeShares host = {{HomeKind::kHost, 1}}, nvme = {{HomeKind::kNvme, 1}};
  for (const HomeShares& weights : {host, nvme}) {
    auto running = engine(weights, nvme, 1, UpdateMode::kSpeculative);
    for (int i = 0; i < 4; ++i) step(*running);
    const StepLanes whole = running->last_lanes();
    const StepLanes drive = replay(*running, LaneGroup::kNvme).lanes;
    EXPECT_EQ(drive[Lane::kRead].bytes, whole[Lane::kRead].bytes);
    EXPECT_EQ(drive[Lane::kWrite].bytes, whole[Lane::kWrite].bytes);
    EXPECT_EQ(replay(*running, LaneGroup::kCpu).lanes[Lane::kUpdate].bytes, whole[Lane::kUpdate].bytes);
  }
}

// To the slot where the records are not; those that wait are updated where they are, so numbers are no training's.
TEST_F(Replays, of_early_updates_between_rare_commits_meet_numbers_alone) {
  reference_.max_norm = 0;
  EngineOptions options = engine_options(folder_, reference_);
  options.plan.placement.weights = options.plan.placement.state = {{HomeKind::kHost, 1}};
  options.plan.commit_interval = 3;
  options.plan.update = UpdateMode::kAuto;
  options.plan.speculated_share = 0.6;
  Engine running(model_, options, toy_source());
  EXPECT_FALSE(running.plan().other_slots.empty());
  step(running);
  EXPECT_FALSE(replay(running, LaneGroup::kCpu).updates_early);
  for (int i = 0; i < 4; ++i) {
    step(running);
    for (const LaneGroup group : kLaneGroups) EXPECT_NO_THROW(replay(running, group)) << i;
  }
  for (int i = 0; i < 3; ++i) step(running);  // the first has nothing pending, the second commits
  const int64_t updated = running.last_lanes()[Lane::kUpdate].bytes;
  const Replay last = replay(running, LaneGroup::kCpu);
  EXPECT_TRUE(last.updates_early);
  EXPECT_EQ(last.lanes[Lane::kUpdate].bytes, updated);
}

TEST_F(Replays, leave_every_bit_of_weights_and_of_state_on_nvme) {
  using enum UpdateMode;
  const RunRecord expected = train_reference(model_, reference_);
  const HomeShares host = {{HomeKind::kHost, 1}}, nvme = {{HomeKind::kNvme, 1}};
  const HomeShares kept = {{HomeKind::kNvmeAndDevice, 1}}, thirds = {{HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.7}};
  for (const auto& [weights, state, interval, update] :
       {std::tuple(nvme, nvme, 1, kDeferred), std::tuple(nvme, nvme, 3, kDeferred),
        std::tuple(host, nvme, 1, kDeferred), std::tuple(nvme, nvme, 1, kSpeculative),
        std::tuple(nvme, nvme, 1, kReplay), std::tuple(kept, thirds, 1, kSpeculative),
        std::tuple(kept, thirds, 1, kReplay), std::tuple(kept, thirds, 3, kDeferred)}) {
    auto running = engine(weights, state, interval, update);
    for (int i = 0; i < reference_.steps; ++i) {
      step(*running);
      for (const int first : {0, 1, 2, 3}) {  // each after each
        for (int k = 0; k < 4; ++k) replay(*running, kLaneGroups[(first * k + first + k) % 4]);
      }
    }
    const Digests digests = running->digests();
    EXPECT_EQ(digests.weights_crc32c, expected.weights_crc32c) << "interval " << interval << ", " << name_of(update);
    EXPECT_EQ(digests.state_crc32c, expected.state_crc32c) << "interval " << interval << ", " << name_of(update);
  }
}

// A step has weights and state in one place each; a replay has what memory held, which need not fit together.
TEST_F(Replays, of_updates_meet_numbers_alone_wherever_the_two_records_of_a_chunk_live) {
  const HomeShares host = {{HomeKind::kHost, 1}}, nvme = {{HomeKind::kNvme, 1}}, kept = {{HomeKind::kNvmeAndDevice, 1}};
  for (const HomeShares& weights : {host, nvme, kept}) {
    for (const HomeShares& state : {host, nvme}) {
      auto running = engine(weights, state, 1);
      for (int i = 0; i < 3; ++i) {
        step(*running);
        EXPECT_NO_THROW(replay(*running, LaneGroup::kCpu)) << i;
      }
      EXPECT_NO_THROW(step(*running));
    }
  }
}

// What a skipped step leaves in rings, and where gradients close and rest, is no number.
TEST_F(Replays, of_updates_meet_numbers_alone_after_a_step_that_was_skipped) {
  const HomeShares nvme = {{HomeKind::kNvme, 1}};
  const HomeShares kept = {{HomeKind::kNvmeAndDevice, 1}}, thirds = {{HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.7}};
  const auto no_numbers = [](Use& use) {
    if (use.pass() != Pass::kBackward) return;
    for (size_t i = 0; i < use.weights().size(); ++i) {
      std::ranges::fill(use.open_gradient(static_cast<int>(i)), std::numeric_limits<float>::quiet_NaN());
    }
  };
  for (const auto& [weights, state] : {std::pair(nvme, nvme), std::pair(kept, thirds)}) {
    for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
      auto running = engine(weights, state, 1, update);
      step(*running);
      const int64_t number = running->step() + 1;
      const Compute good = toy_compute(model_, number);
      EXPECT_TRUE(running
                      ->train_step(reference_.learning_rate,
                                   [&](Use& use) {
                                     good(use);
                                     no_numbers(use);
                                   })
                      .skipped);
      EXPECT_NO_THROW(replay(*running, LaneGroup::kCpu)) << name_of(update);
      EXPECT_NO_THROW(step(*running)) << name_of(update);
    }
  }
}

TEST_F(Replays, whose_compute_throws_end_and_the_next_step_trains) {
  using enum UpdateMode;
  const RunRecord expected = train_reference(model_, reference_);
  const HomeShares nvme = {{HomeKind::kNvme, 1}};
  const HomeShares kept = {{HomeKind::kNvmeAndDevice, 1}}, thirds = {{HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.7}};
  for (const auto& [weights, state, update] :
       {std::tuple(nvme, nvme, kDeferred), std::tuple(kept, nvme, kDeferred), std::tuple(kept, thirds, kDeferred),
        std::tuple(kept, nvme, kSpeculative), std::tuple(kept, thirds, kReplay)}) {
    auto running = engine(weights, state, 1, update);
    step(*running);
    const auto fails = [](Use& use) {
      if (use.visit() == 2) throw std::runtime_error("no compute today");
    };
    EXPECT_THROW(running->replay(LaneGroup::kCompute, fails), std::runtime_error);
    for (int i = 1; i < reference_.steps; ++i) step(*running);
    EXPECT_EQ(running->digests().weights_crc32c, expected.weights_crc32c) << name_of(update);
    EXPECT_EQ(running->digests().state_crc32c, expected.state_crc32c) << name_of(update);
  }
}

}  // namespace
}  // namespace sluice::testing
