// Layers in tiles: what tiling is for, and what it leaves as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/random.h"
#include "engine/planner.h"
#include "libtorch/process.h"
#include "models/gpt2.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {
namespace {

// One block of 12 x 256^2 elements, cut between up to 32 heads.
Gpt2Config config_in(Gpt2Tiling tiling) {
  Gpt2Config config;
  config.vocab_size = 500, config.n_positions = 64, config.n_embd = 256, config.n_layer = 2, config.n_head = 32;
  config.tiling = tiling;
  return config;
}

struct Steps {
  std::vector<double> losses, norms;
  Digests digests;
};

class Training {
 public:
  explicit Training(Gpt2Tiling tiling, Precision precision = Precision::kFp32)
      : model_(config_in(tiling), {.precision = precision, .batch = 1, .sequence = 16, .loss_tile_tokens = 16}) {
    set_process({.compute_threads = 2});
    for (uint64_t i = 0; i < 1000; ++i) ids_.push_back(static_cast<int64_t>(uniform_at(3, 0, i) * 500));
    options_.plan = {.precision = precision,
                     .gradient_dtype = weights_dtype(precision),
                     .device_bytes = 32 * kMiB,
                     .host_bytes = 64 * kMiB,
                     .workspace_bytes = model_.measure_memory().workspace_bytes,
                     .micro_batches = 2,
                     .chunk_elements = 4096};
    options_.store.folder = folder_.path() / "store";
    options_.adam.learning_rate = 1e-3;
    options_.max_norm = 1;
    options_.update_threads = 1;
  }

  EngineOptions& options() { return options_; }
  Gpt2& model() { return model_; }
  void open(OpenMode mode) {
    engine_.reset();
    options_.open = mode;
    engine_ = std::make_unique<Engine>(model_.spec(), options_, model_.initial_values(1));
    model_.use_memory(*engine_);
  }
  void close() { engine_.reset(); }
  Engine& engine() { return *engine_; }

  // Up to step `last`.
  Steps train(int64_t last) {
    Steps steps;
    while (engine_->step() < last) {
      const auto first = static_cast<size_t>(engine_->step() * 32);
      const StepEnd end =
          engine_->train_step(1e-3, model_.compute({.ids = std::span(ids_).subspan(first, 32),
                                                    .targets = std::span(ids_).subspan(first + 1, 32)}));
      steps.losses.push_back(end.loss);
      steps.norms.push_back(end.grad_norm);
    }
    steps.digests = engine_->digests();
    return steps;
  }

 private:
  TempFolder folder_;
  Gpt2 model_;
  EngineOptions options_;
  std::vector<int64_t> ids_;
  std::unique_ptr<Engine> engine_;
};

void expect_same_bits(const Steps& steps, const Steps& wanted) {
  EXPECT_EQ(steps.losses, wanted.losses);
  EXPECT_EQ(steps.norms, wanted.norms);
  EXPECT_EQ(steps.digests.weights_crc32c, wanted.digests.weights_crc32c);
  EXPECT_EQ(steps.digests.state_crc32c, wanted.digests.state_crc32c);
}

int64_t block_weights_bytes(const Gpt2& model) {
  int64_t elements = 0;
  for (const PartitionSpec& partition : model.spec().partitions) {
    if (!partition.name.starts_with("h.0")) continue;
    for (const ParameterSpec& parameter : partition.parameters) elements += parameter.elements();
  }
  return elements * 4;
}

TEST(Tiles, start_from_the_values_of_whole_layers_and_count_as_many) {
  const Gpt2 whole(config_in({}), {}), tiled(config_in({5, 7}), {});
  EXPECT_EQ(tiled.parameter_count(), whole.parameter_count());
  EXPECT_FALSE(whole.tiles().find("transformer.wte.weight"));
  const Geometry tiles(tiled.spec().partitions, 1024), uncut(whole.spec().partitions, 1024);
  std::map<std::string, std::vector<float>> put_together;
  for (const Parameter& parameter : tiles.parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter.elements)), again(values.size());
    tiled.initial_values(1)(parameter, 0, values);
    for (size_t at = 0; at < again.size(); at += 100) {  // in pieces that end within rows
      const auto piece = std::span(again).subspan(at, std::min<size_t>(100, again.size() - at));
      tiled.initial_values(1)(parameter, static_cast<int64_t>(at), piece);
    }
    EXPECT_EQ(again, values);
    const ParameterTile* const tile = tiled.tiles().find(parameter.name);
    std::vector<float>& to = put_together[tile != nullptr ? tile->whole.name : parameter.name];
    if (tile == nullptr) {
      to = values;
      continue;
    }
    to.resize(static_cast<size_t>(tile->whole.elements()));
    for (int64_t run = 0; run < tile->runs; ++run) {
      std::copy_n(values.begin() + run * tile->run, tile->run, to.begin() + tile->first + run * tile->stride);
    }
  }
  for (const Parameter& parameter : uncut.parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter.elements));
    whole.initial_values(1)(parameter, 0, values);
    EXPECT_EQ(put_together[parameter.name], values) << parameter.name;
  }
}

TEST(Tiles, train_like_whole_layers_within_a_hundred_thousandth) {
  Training whole({});
  whole.open(OpenMode::kCreate);
  const Steps wanted = whole.train(5);
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{4, 8}, Gpt2Tiling{5, 7}, Gpt2Tiling{32, 1}, Gpt2Tiling{1, 64}}) {
    Training tiled(tiling);
    tiled.open(OpenMode::kCreate);
    const Steps steps = tiled.train(5);
    for (size_t i = 0; i < wanted.losses.size(); ++i) {
      EXPECT_NEAR(steps.losses[i] / wanted.losses[i], 1, 1e-5) << tiling.linear << " " << tiling.embedding << " " << i;
      EXPECT_NEAR(steps.norms[i] / wanted.norms[i], 1, 1e-4);
    }
  }
}

TEST(Tiles, train_blocks_of_eight_times_the_device_budget_to_the_bits_of_large_budgets) {
  Training run({32, 16});
  run.open(OpenMode::kCreate);
  const Steps wanted = run.train(3);
  const Planner planner(run.model().spec(), run.options().plan);
  const int64_t least = planner.smallest_device(run.options().plan.host_bytes).value();
  EXPECT_GE(block_weights_bytes(run.model()), 8 * least);
  run.options().plan.device_bytes = least;
  run.options().plan.host_bytes = planner.smallest_host(least).value();
  run.open(OpenMode::kOverwrite);
  expect_same_bits(run.train(3), wanted);
  EXPECT_LE(run.engine().ledger().peak(Tier::kDevice), least);
  EXPECT_LE(run.model().workspace_peak_bytes(), run.options().plan.workspace_bytes);

  Training whole({});
  const Planner of_whole(whole.model().spec(), whole.options().plan);
  EXPECT_GT(of_whole.smallest_device(whole.options().plan.host_bytes).value(), 8 * least);
}

TEST(Tiles, go_on_from_the_last_commit_to_the_same_bits) {
  Training straight({4, 8});
  straight.open(OpenMode::kCreate);
  straight.options().plan.commit_interval = 1;
  const Steps wanted = straight.train(4);
  Training run({4, 8});
  run.options().plan.commit_interval = 1;
  run.open(OpenMode::kCreate);
  run.train(2);
  run.open(OpenMode::kResume);
  const Steps rest = run.train(4);
  EXPECT_EQ(rest.losses, std::vector<double>(wanted.losses.begin() + 2, wanted.losses.end()));
  EXPECT_EQ(rest.digests.weights_crc32c, wanted.digests.weights_crc32c);
  EXPECT_EQ(rest.digests.state_crc32c, wanted.digests.state_crc32c);
}

TEST(Tiles, of_another_number_refuse_a_store) {
  Training run({4, 8});
  run.open(OpenMode::kCreate);
  run.close();
  Training other({4, 4});
  other.options().store = run.options().store;
  EXPECT_THROW(other.open(OpenMode::kResume), ConfigError);
}

}  // namespace
}  // namespace sluice::testing
