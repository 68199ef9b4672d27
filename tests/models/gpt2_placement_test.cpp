// Where the bytes of a GPT-2 rest changes no bit of its training.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "engine/planner.h"
#include "libtorch/process.h"
#include "models/gpt2.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

constexpr int kMicroBatches = 2, kSteps = 3;

// What a run gives; compared bit by bit.
struct Record {
  std::vector<double> losses, norms;
  uint32_t weights_crc32c = 0, state_crc32c = 0;
  bool operator==(const Record&) const = default;
};

struct Trained {
  Record record;
  StepLanes lanes;
  int64_t elements = 0;  // of the model, with padding
  int64_t graphs = 0;    // visits whose forward keeps one
  bool every_step_commits = false;
};

class Gpt2Placement : public ::testing::Test {
 protected:
  Gpt2Placement(const Gpt2Config& config, const Gpt2Options& options) : model_(config, options) {
    set_process({.compute_threads = 2});
    memory_ = model_.measure_memory();
    const int64_t tokens = options.batch * options.sequence * kMicroBatches * kSteps;
    for (int64_t i = 0; i <= tokens; ++i) {
      ids_.push_back(static_cast<int64_t>(uniform_at(5, 0, static_cast<uint64_t>(i)) * 30) * 11);
    }
    ids_[3] = 330;
  }

  EngineOptions options_in(const TempFolder& folder) const {
    EngineOptions options;
    const Precision precision = model_.options().precision;
    options.plan = {.precision = precision,
                    .gradient_dtype = weights_dtype(precision),
                    .device_bytes = 8 * kMiB,
                    .host_bytes = 16 * kMiB,
                    .workspace_bytes = memory_.workspace_bytes,
                    .graph_bytes = memory_.graph_bytes,
                    .micro_batches = kMicroBatches};
    options.store.folder = folder.path();
    options.adam.learning_rate = 1e-3;
    options.max_norm = 0.5;
    options.update_threads = 1;
    return options;
  }

  Trained train(const std::function<void(EngineOptions&)>& change) {
    const TempFolder folder;
    EngineOptions options = options_in(folder);
    change(options);
    Engine engine(model_.spec(), options, model_.initial_values(1));
    model_.use_workspace(engine.workspace());
    Trained run;
    const size_t tokens = (ids_.size() - 1) / static_cast<size_t>(kSteps);
    for (size_t step = 0; step < static_cast<size_t>(kSteps); ++step) {
      const auto ids = std::span(ids_).subspan(step * tokens, tokens),
                 next = std::span(ids_).subspan(step * tokens + 1, tokens);
      const StepEnd end = engine.train_step(1e-3, model_.compute({.ids = ids, .targets = next}));
      run.record.losses.push_back(end.loss);
      run.record.norms.push_back(end.grad_norm);
    }
    run.lanes = engine.last_lanes();
    run.elements = engine.geometry().padded_elements();
    run.graphs = std::ranges::count_if(engine.plan().graphs, [](int64_t at) { return at >= 0; });
    EXPECT_LE(model_.workspace_peak_bytes(), memory_.workspace_bytes);
    run.every_step_commits = engine.plan().commit_interval == 1;
    const Digests digests = engine.digests();
    run.record.weights_crc32c = digests.weights_crc32c;
    run.record.state_crc32c = digests.state_crc32c;
    EXPECT_LE(engine.ledger().peak(Tier::kDevice), options.plan.device_bytes);
    EXPECT_LE(engine.ledger().peak(Tier::kHost), options.plan.host_bytes);
    return run;
  }

  void expect_same(const std::function<void(EngineOptions&)>& change) { EXPECT_EQ(train(change).record, expected()); }
  std::function<void(EngineOptions&)> in_smallest_budgets() const {
    return [this](EngineOptions& options) {
      const Planner planner(model_.spec(), options.plan);
      options.plan.device_bytes = planner.smallest_device(options.plan.host_bytes).value();
      options.plan.host_bytes = planner.smallest_host(options.plan.device_bytes).value();
    };
  }
  const Record& expected() {
    if (expected_.losses.empty()) expected_ = train([](EngineOptions&) {}).record;
    return expected_;
  }

 private:
  Gpt2 model_;
  ComputeMemory memory_;
  std::vector<int64_t> ids_;
  Record expected_;
};

Gpt2Config config_of(int64_t layers, int64_t width) {
  Gpt2Config config;
  config.vocab_size = 331, config.n_positions = 48, config.n_embd = width, config.n_layer = layers, config.n_head = 3;
  return config;
}

class FiveLayersInBf16 : public Gpt2Placement {
 protected:
  FiveLayersInBf16() : Gpt2Placement(config_of(5, 72), {.precision = Precision::kBf16, .batch = 3, .sequence = 33}) {}
};
class ThreeLayersInFp32 : public Gpt2Placement {
 protected:
  ThreeLayersInFp32() : Gpt2Placement(config_of(3, 60), {.precision = Precision::kFp32, .batch = 2, .sequence = 48}) {}
};

Gpt2Config in_tiles(Gpt2Config config, Gpt2Tiling tiling) {
  config.tiling = tiling;
  return config;
}
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
  for (const HomeKind weights : {kHost, kNvme, kHostAndDevice, kNvmeAndDevice}) {
    for (const HomeKind state : {kHost, kNvme}) {
      for (const HomeKind gradient : {kDevice, kHost, kNvme}) {
        for (const HomeKind activations : {kDevice, kHost, kNvme}) {
          SCOPED_TRACE(fmt::format("weights {} state {} gradient {} activations {}", name_of(weights), name_of(state),
                                   name_of(gradient), name_of(activations)));
          const Trained run = train([&](EngineOptions& o) {
            o.plan.placement = {{{weights, 1}}, {{state, 1}}, {{gradient, 1}}, {{activations, 1}}};
          });
          EXPECT_EQ(run.record, expected());
          // A block's backward finds its graph where weights and inputs stay on the device.
          const bool weights_stay = weights == kHostAndDevice || weights == kNvmeAndDevice;
          EXPECT_EQ(run.graphs, weights_stay && activations == kDevice ? 5 : 0);
          // bf16 state is 10 bytes an element.
          EXPECT_EQ(run.lanes.state_read_bytes, state == kNvme ? 10 * run.elements : 0);
          EXPECT_EQ(run.lanes.state_write_bytes, run.every_step_commits ? 10 * run.elements : 0);
          // A bf16 gradient is written once and read once.
          EXPECT_EQ(run.lanes.gradient_write_bytes, gradient == kNvme ? 2 * run.elements : 0);
          EXPECT_EQ(run.lanes.gradient_read_bytes, gradient == kNvme ? 2 * run.elements : 0);
        }
      }
    }
  }
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
        EXPECT_EQ(run.lanes.state_read_bytes, 0);
        EXPECT_EQ(run.lanes.state_write_bytes, interval == 1 ? 10 * run.elements : 0);
      }
    }
  }
}

TEST_F(FiveLayersInBf16, train_to_the_same_bits_in_small_budgets_whatever_moves_the_bytes) {
  expect_same(in_small_budgets);
  for (const IoBackend backend : {IoBackend::kUring, IoBackend::kThreads}) {
    for (const int threads : {1, 2}) {
      expect_same([&](EngineOptions& o) {
        in_small_budgets(o);
        o.store.queue.backend = backend;
        o.store.queue.depth = threads == 1 ? 2 : 16;
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
