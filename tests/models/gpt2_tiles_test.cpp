// Layers in tiles: what tiling is for, and what it leaves as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/errors.h"
#include "core/random.h"
#include "engine/planner.h"
#include "libtorch/process.h"
#include "models/gpt2.h"
#include "models/hugging_face.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/temp_folder.h"
#include "tests/models/compute_threads.h"

namespace sluice::testing {
namespace {

constexpr int64_t kHeads = 32;

// One block of 12 x 256^2 elements, or a little less with 3 heads.
Gpt2Config config_in(Gpt2Tiling tiling, int64_t heads = kHeads) {
  Gpt2Config config;
  config.vocab_size = 500, config.n_positions = 64, config.n_layer = 2;
  config.n_embd = 256 / heads * heads, config.n_head = heads;
  config.tiling = tiling;
  return config;
}

// More tiles than there are heads, and than there are positions.
constexpr int64_t kFewHeads = 3;
constexpr Gpt2Tiling kManyTiles = {8, 100};

struct Steps {
  std::vector<double> losses, norms;
  Digests digests;
};

class Training {
 public:
  explicit Training(Gpt2Tiling tiling, int64_t heads = kHeads)
      : Training(config_in(tiling, heads),
                 {.precision = Precision::kFp32, .batch = 1, .sequence = 16, .loss_tile_tokens = 16}) {}
  Training(const Gpt2Config& config, const Gpt2Options& options) : model_(config, options) {
    set_process({.compute_threads = kComputeThreads});
    const auto words = static_cast<double>(config.vocab_size);
    for (uint64_t i = 0; i < 1000; ++i) ids_.push_back(static_cast<int64_t>(uniform_at(3, 0, i) * words));
    options_.plan = {.precision = Precision::kFp32,
                     .gradient_dtype = DType::kFp32,
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
  void open(OpenMode mode) { open(mode, model_.initial_values(1)); }
  void open(OpenMode mode, const ParameterSource& values) {
    engine_.reset();
    options_.open = mode;
    engine_ = std::make_unique<Engine>(model_.spec(), options_, values);
    model_.use_memory(*engine_);
  }
  void close() { engine_.reset(); }
  Engine& engine() { return *engine_; }

  // Up to step `last`.
  Steps train(int64_t last) {
    Steps steps;
    const auto tokens = static_cast<size_t>(2 * model_.options().batch * model_.options().sequence);
    while (engine_->step() < last) {
      const size_t first = static_cast<size_t>(engine_->step()) * tokens;
      const StepEnd end =
          engine_->train_step(1e-3, model_.compute({.ids = std::span(ids_).subspan(first, tokens),
                                                    .targets = std::span(ids_).subspan(first + 1, tokens)}));
      steps.losses.push_back(end.loss);
      steps.norms.push_back(end.grad_norm);
    }
    steps.digests = engine_->digests();
    return steps;
  }
  // Of what follows five tokens.
  std::vector<float> logits() {
    std::vector<float> values(500);
    engine_->evaluate(1, model_.next_token_logits(std::span(ids_).first(5), values));
    return values;
  }
  int64_t smallest_device() const {
    return Planner(model_.spec(), options_.plan).smallest_device(options_.plan.host_bytes).value();
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

void expect_steps_like(const Steps& wanted, Gpt2Tiling tiling, int64_t heads) {
  Training tiled(tiling, heads);
  tiled.open(OpenMode::kCreate);
  const Steps steps = tiled.train(static_cast<int64_t>(wanted.losses.size()));
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(steps.losses[i] / wanted.losses[i], 1, 1e-5) << tiling.linear << " " << tiling.embedding << " " << i;
    EXPECT_NEAR(steps.norms[i] / wanted.norms[i], 1, 1e-4);
  }
}

int64_t block_weights_bytes(const Gpt2& model) {
  int64_t elements = 0;
  for (const PartitionSpec& partition : model.spec().partitions) {
    if (!partition.name.starts_with("h.0")) continue;
    for (const ParameterSpec& parameter : partition.parameters) elements += parameter.elements();
  }
  return elements * 4;
}

// Returns the smallest device budget.
int64_t expect_an_eighth_is_enough(Gpt2Tiling tiling, int64_t heads) {
  Training run(tiling, heads);
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
  return least;
}

void expect_values_of_whole_layers(Gpt2Tiling tiling, int64_t heads) {
  const Gpt2 whole(config_in({}, heads), {}), tiled(config_in(tiling, heads), {});
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

TEST(Tiles, start_from_the_values_of_whole_layers_and_count_as_many) {
  expect_values_of_whole_layers({5, 7}, kHeads);
  expect_values_of_whole_layers(kManyTiles, kFewHeads);
}

TEST(Tiles, of_a_part_are_as_many_as_are_wanted_or_as_it_can_be_cut_into) {
  const Gpt2 model(config_in(kManyTiles, kFewHeads), {});
  const auto count = [&](const std::string& prefix) {
    return std::ranges::count_if(model.spec().partitions,
                                 [&](const PartitionSpec& partition) { return partition.name.starts_with(prefix); });
  };
  EXPECT_EQ(count("h.1.attn.in."), 6);
  EXPECT_EQ(count("h.1.attn.out."), 3);
  EXPECT_EQ(count("h.1.mlp."), 8);
  EXPECT_EQ(count("wpe."), 64);
  EXPECT_EQ(count("wte."), 100);
  EXPECT_EQ(model.spec().tensors.back().name, "statistics");
  EXPECT_EQ(model.spec().tensors.back().elements, 3 * 64);
  EXPECT_TRUE(model.tiles().find("transformer.h.1.attn.c_attn.weight[5/6]"));
  EXPECT_TRUE(model.tiles().find("transformer.h.1.attn.c_proj.weight[2/3]"));
  const Gpt2 one_a_head(config_in({3, 1}, kFewHeads), {});
  EXPECT_TRUE(one_a_head.tiles().find("transformer.h.1.attn.c_attn.weight[2/3]"));
  EXPECT_TRUE(model.tiles().find("transformer.wpe.weight[63/64]"));
}

std::string refusal_of(Gpt2Tiling tiling) {
  return message_or<ConfigError>("", [&] { config_in(tiling, kFewHeads).validate(); });
}

TEST(Tiles, are_refused_beyond_the_hidden_features_and_the_vocabulary_alone) {
  EXPECT_EQ(refusal_of({1020, 500}), "");
  EXPECT_EQ(
      refusal_of({1021, 1}),
      "model.tiling.linear is 1021: 1 (whole) to 1020, model.n_inner: the MLP is cut between its hidden features");
  EXPECT_EQ(refusal_of({1, 501}),
            "model.tiling.embedding is 501: 1 (whole) to 500, model.vocab_size: the embedding is cut between its rows");
}

TEST(Tiles, train_like_whole_layers_within_a_hundred_thousandth) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; "
                    "train_blocks_of_eight_times_the_device_budget_to_the_bits_of_large_budgets runs the same code";
  Training whole({});
  whole.open(OpenMode::kCreate);
  const Steps wanted = whole.train(5);
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{4, 8}, Gpt2Tiling{5, 7}, Gpt2Tiling{32, 1}, Gpt2Tiling{1, 64}}) {
    expect_steps_like(wanted, tiling, kHeads);
  }
}

TEST(Tiles, more_than_heads_and_positions_train_like_whole_layers_within_a_hundred_thousandth) {
  if (SLUICE_IS_SANITIZED)
    GTEST_SKIP() << "takes a sanitizer minutes; "
                    "more_than_heads_and_positions_train_to_the_same_bits_wherever_bytes_rest runs the same code";
  Training whole({}, kFewHeads);
  whole.open(OpenMode::kCreate);
  const Steps wanted = whole.train(3);
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{4, 8}, Gpt2Tiling{40, 8}, kManyTiles})
    expect_steps_like(wanted, tiling, kFewHeads);
  Training one_head({}, 1);
  one_head.open(OpenMode::kCreate);
  expect_steps_like(one_head.train(2), {11, 1}, 1);
}

TEST(Tiles, more_than_heads_and_positions_train_to_the_same_bits_wherever_bytes_rest) {
  using enum HomeKind;
  Training run(kManyTiles, kFewHeads);
  run.open(OpenMode::kCreate);
  const Steps wanted = run.train(2);
  for (const HomeKind weights : {kNvme, kHostAndDevice}) {
    for (const HomeKind others : {kDevice, kHost}) {
      run.options().plan.placement = {{{weights, 1}}, {{kNvme, 1}}, {{others, 1}}, {{others, 1}}};
      run.open(OpenMode::kOverwrite);
      expect_same_bits(run.train(2), wanted);
    }
  }
  run.options().plan.placement = {};
  run.options().plan.device_bytes = run.smallest_device();
  run.open(OpenMode::kOverwrite);
  expect_same_bits(run.train(2), wanted);
}

// Where a head is a fourth of a layer, its products are cut.
TEST(Tiles, of_few_heads_train_blocks_of_eight_times_the_device_budget_to_the_bits_of_large_budgets) {
  constexpr int64_t kLargeHeads = 4;
  EXPECT_LT(block_weights_bytes(Training({4, 16}, kLargeHeads).model()),
            8 * Training({4, 16}, kLargeHeads).smallest_device());
  expect_an_eighth_is_enough({32, 16}, kLargeHeads);
  expect_an_eighth_is_enough({64, 16}, 8);  // products of several sizes
}

TEST(Tiles, more_than_heads_and_positions_go_to_a_hugging_face_folder_and_back) {
  const TempFolder out;
  Training run(kManyTiles, kFewHeads), whole({}, kFewHeads);
  run.open(OpenMode::kCreate);
  run.train(2);
  export_hugging_face({.folder = out.path().string(), .dtype = DType::kFp32}, run.model(),
                      [&](int parameter, std::span<std::byte> into) { run.engine().read(parameter, into); });
  whole.open(OpenMode::kCreate, hugging_face_source(out.path().string(), whole.model()));
  const std::vector<float> wanted = run.logits(), logits = whole.logits();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(logits[i], wanted[i], 1e-5);

  const ParameterSource again = hugging_face_source(out.path().string(), run.model());
  int index = 0;
  const Geometry geometry(run.model().spec().partitions, 1024);
  for (const Parameter& parameter : geometry.parameters()) {
    std::vector<float> trained(static_cast<size_t>(parameter.elements)), read(trained.size());
    run.engine().read(index++, std::as_writable_bytes(std::span(trained)));
    again(parameter, 0, read);
    EXPECT_EQ(read, trained) << parameter.name;
  }
}

TEST(Tiles, train_blocks_of_eight_times_the_device_budget_to_the_bits_of_large_budgets) {
  const int64_t least = expect_an_eighth_is_enough({32, 16}, kHeads);
  Training whole({});
  const Planner of_whole(whole.model().spec(), whole.options().plan);
  EXPECT_GT(of_whole.smallest_device(whole.options().plan.host_bytes).value(), 8 * least);
}

void expect_same_bits_after_a_commit(Gpt2Tiling tiling, int64_t heads) {
  Training straight(tiling, heads);
  straight.options().plan.commit_interval = 1;
  straight.open(OpenMode::kCreate);
  const Steps wanted = straight.train(4);
  Training run(tiling, heads);
  run.options().plan.commit_interval = 1;
  run.open(OpenMode::kCreate);
  run.train(2);
  run.open(OpenMode::kResume);
  const Steps rest = run.train(4);
  EXPECT_EQ(rest.losses, std::vector<double>(wanted.losses.begin() + 2, wanted.losses.end()));
  EXPECT_EQ(rest.digests.weights_crc32c, wanted.digests.weights_crc32c);
  EXPECT_EQ(rest.digests.state_crc32c, wanted.digests.state_crc32c);
}

TEST(Tiles, go_on_from_the_last_commit_to_the_same_bits) {
  expect_same_bits_after_a_commit({4, 8}, kHeads);
  expect_same_bits_after_a_commit(kManyTiles, kFewHeads);
}

// A smaller one may take more of it: products choose what they take by a shape, and a hole may be in another place.
TEST(Tiles, of_every_size_find_their_workspace) {
  Gpt2Config small, odd;
  small.vocab_size = 97, small.n_positions = 5, small.n_embd = 8, small.n_layer = 1, small.n_head = 8;
  small.n_inner = 13, small.tie_word_embeddings = false, small.tiling = {11, 13};
  odd.vocab_size = 1009, odd.n_positions = 8, odd.n_embd = 256, odd.n_layer = 1, odd.n_head = 8, odd.tiling = {7, 5};
  const Gpt2Options of_small{.precision = Precision::kFp32, .batch = 7, .sequence = 5};
  const Gpt2Options of_odd{.precision = Precision::kBf16, .batch = 2, .sequence = 1, .loss_tile_tokens = 3};
  for (const auto& [config, options] : {std::pair(small, of_small), {odd, of_odd}}) {
    Training run(config, options);
    run.options().plan.precision = options.precision;
    run.options().plan.gradient_dtype = weights_dtype(options.precision);
    run.open(OpenMode::kCreate);
    EXPECT_NO_THROW(run.train(1)) << config.vocab_size;
  }
}

TEST(Tiles, of_another_number_refuse_a_store) {
  Training run(kManyTiles, kFewHeads);
  run.open(OpenMode::kCreate);
  run.close();
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{7, 100}, Gpt2Tiling{8, 99}}) {
    Training other(tiling, kFewHeads);
    other.options().store = run.options().store;
    EXPECT_THROW(other.open(OpenMode::kResume), ConfigError);
  }
}

}  // namespace
}  // namespace sluice::testing
