// Where the bytes of a GPT-2 rest changes no bit of its training.
#include <fmt/format.h>

#include "tests/fakes/io_backends.h"
#include "tests/models/placement_fixture.h"

namespace sluice::testing {
namespace {

class FiveLayersInBf16 : public Gpt2Placement {
 protected:
  FiveLayersInBf16() : Gpt2Placement(config_of(5, 72), {.precision = Precision::kBf16, .batch = 3, .sequence = 33}) {}
};
class ThreeLayersInFp32 : public Gpt2Placement {
 protected:
  ThreeLayersInFp32() : Gpt2Placement(config_of(3, 60), {.precision = Precision::kFp32, .batch = 2, .sequence = 48}) {}
};

class TwoLayersInTiles : public Gpt2Placement {
 protected:
  TwoLayersInTiles()
      : Gpt2Placement(in_tiles(config_of(2, 72), {2, 5}), {.precision = Precision::kBf16, .batch = 3, .sequence = 33}) {
  }
};
class TwoLayersInTilesInFp32 : public Gpt2Placement {
 protected:
  TwoLayersInTilesInFp32()
      : Gpt2Placement(in_tiles(config_of(2, 60), {3, 4}), {.precision = Precision::kFp32, .batch = 2, .sequence = 48}) {
  }
};

void in_small_budgets(EngineOptions& options) {
  options.plan.device_bytes = 2 * kMiB;
  options.plan.host_bytes = 3 * kMiB;
}

TEST_F(FiveLayersInBf16, train_to_the_same_bits_from_every_combination_of_homes) {
  using enum HomeKind;
  for_every_combination_of_homes([&](const FourHomes& homes) {
    const Trained run = train(homes);
    EXPECT_EQ(run.record, expected());
    // A block's backward finds its graph where its inputs stay on the device; its weights stay with it.
    EXPECT_EQ(run.graphs, homes.activations == kDevice ? 5 : 0);
    // bf16 state is 10 bytes an element.
    EXPECT_EQ(run.lanes.bytes(Lane::kRead, Group::kState), homes.state == kNvme ? 10 * run.elements : 0);
    EXPECT_EQ(run.lanes.bytes(Lane::kWrite, Group::kState), run.every_step_commits ? 10 * run.elements : 0);
    // A bf16 gradient is written once and read once.
    EXPECT_EQ(run.lanes.bytes(Lane::kWrite, Group::kGradient), homes.gradient == kNvme ? 2 * run.elements : 0);
    EXPECT_EQ(run.lanes.bytes(Lane::kRead, Group::kGradient), homes.gradient == kNvme ? 2 * run.elements : 0);
  });
}

TEST_F(FiveLayersInBf16, train_to_the_same_bits_with_state_on_the_device) {
  using enum HomeKind;
  for (const HomeShares& state : {HomeShares{{kDevice, 1}}, {{kDevice, 0.3}, {kHost, 0.3}, {kNvme, 0.4}}}) {
    for (const int interval : {1, 10}) {
      const Trained run = train([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.commit_interval = interval;
      });
      EXPECT_EQ(run.record, expected());
      if (state.size() == 1) {
        EXPECT_EQ(run.lanes.bytes(Lane::kRead, Group::kState), 0);
        EXPECT_EQ(run.lanes.bytes(Lane::kWrite, Group::kState), interval == 1 ? 10 * run.elements : 0);
      }
    }
  }
}

TEST_F(FiveLayersInBf16, train_to_the_same_bits_in_small_budgets_whatever_moves_the_bytes) {
  expect_same(in_small_budgets);
  expect_same(in_smallest_budgets());
  for (const IoBackend backend : backends_here()) {
    for (const int threads : {1, 2}) {
      expect_same([&](EngineOptions& o) {
        in_small_budgets(o);
        o.store.queue.backend = backend;
        o.plan.io_depth = threads == 1 ? 2 : 16;
        o.update_threads = threads;
      });
    }
  }
}

TEST_F(FiveLayersInBf16, train_to_the_same_bits_from_mixed_homes_in_odd_chunks) {
  using enum HomeKind;
  for (const int64_t chunk : {1000, 5001, 1 << 20}) {
    expect_same([&](EngineOptions& o) {
      o.plan.chunk_elements = chunk;
      o.plan.placement = {.weights = {{kHost, 0.5}, {kNvme, 0.5}},
                          .state = {{kNvme, 0.4}, {kHost, 0.6}},
                          .gradient = {{kHost, 0.3}, {kDevice, 0.3}, {kNvme, 0.4}},
                          .activations = {{kDevice, 0.3}, {kHost, 0.3}, {kNvme, 0.4}}};
    });
  }
}

TEST_F(TwoLayersInTiles, train_to_the_same_bits_from_every_combination_of_homes) {
  using enum HomeKind;
  for (const HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
    for (const HomeKind gradient : {kDevice, kHost}) {
      for (const HomeKind activations : {kDevice, kHost}) {
        SCOPED_TRACE(fmt::format("weights {} gradient {} activations {}", name_of(weights), name_of(gradient),
                                 name_of(activations)));
        const HomeKind state = gradient == kDevice ? kHost : kNvme;
        expect_same([&](EngineOptions& o) {
          o.plan.placement = {{{weights, 1}}, {{state, 1}}, {{gradient, 1}}, {{activations, 1}}};
        });
      }
    }
  }
}

TEST_F(TwoLayersInTilesInFp32, train_to_the_same_bits_in_the_smallest_budgets_and_from_mixed_homes) {
  using enum HomeKind;
  expect_same(in_smallest_budgets());
  for (const int64_t chunk : {1000, 1 << 20}) {
    expect_same([&](EngineOptions& o) {
      o.plan.chunk_elements = chunk;
      o.plan.placement = {.weights = {{kHost, 0.5}, {kNvme, 0.5}},
                          .state = {{kNvme, 0.4}, {kHost, 0.6}},
                          .gradient = {{kHost, 0.5}, {kDevice, 0.5}},
                          .activations = {{kDevice, 0.5}, {kHost, 0.5}}};
    });
  }
}

TEST_F(ThreeLayersInFp32, train_to_the_same_bits_in_small_budgets_and_from_forced_homes) {
  using enum HomeKind;
  expect_same(in_small_budgets);
  for (const HomeKind weights : {kHost, kNvmeAndDevice}) {
    expect_same([&](EngineOptions& o) {
      o.plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{kHost, 1}}, {{kHost, 1}}};
    });
  }
}

}  // namespace
}  // namespace sluice::testing
