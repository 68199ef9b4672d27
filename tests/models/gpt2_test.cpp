#include "models/gpt2.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/errors.h"
#include "libtorch/process.h"
#include "models/gpt2_timing.h"
#include "models/gpt2_visits.h"
#include "tests/fakes/message_of.h"
#include "tests/models/compute_threads.h"

namespace sluice::testing {
namespace {

Gpt2Config small() {
  Gpt2Config config;
  config.vocab_size = 331, config.n_positions = 40, config.n_embd = 72, config.n_layer = 3, config.n_head = 3;
  return config;
}

TEST(Gpt2, counts_its_parameters_as_hugging_face_does) {
  EXPECT_EQ(Gpt2(Gpt2Config(), {.sequence = 128}).parameter_count(), 124'439'808);
  Gpt2Config untied;
  untied.tie_word_embeddings = false;
  EXPECT_EQ(Gpt2(untied, {.sequence = 128}).parameter_count(), 124'439'808 + 50257 * 768);
}

TEST(Gpt2, is_a_valid_list_of_visits_tied_or_not) {
  for (const bool tied : {true, false}) {
    Gpt2Config config = small();
    config.tie_word_embeddings = tied;
    const Gpt2 model(config, {});
    const ModelSpec& spec = model.spec();
    EXPECT_NO_THROW(spec.validate());
    EXPECT_EQ(spec.visits.size(), 5u);
    EXPECT_EQ(spec.visits.back().partitions.size(), tied ? 2u : 1u);
    EXPECT_TRUE(spec.visits.back().gives.empty());
  }
}

TEST(Gpt2, starts_from_values_that_depend_on_seed_name_and_element_alone) {
  const Gpt2 model(small(), {});
  const Geometry geometry(model.spec().partitions, 1024);
  const auto values = [&](const char* name, uint64_t seed, int64_t first, size_t count) {
    std::vector<float> into(count);
    const int index = geometry.find_parameter(name);
    model.initial_values(seed)(geometry.parameters()[static_cast<size_t>(index)], first, into);
    return into;
  };
  const char* const weight = "transformer.h.1.attn.c_attn.weight";
  const std::vector<float> whole = values(weight, 1, 0, 72 * 216);
  EXPECT_EQ(values(weight, 1, 1000, 100), std::vector<float>(whole.begin() + 1000, whole.begin() + 1100));
  EXPECT_NE(values(weight, 2, 0, 100), values(weight, 1, 0, 100));
  EXPECT_NE(values("transformer.h.2.attn.c_attn.weight", 1, 0, 100), values(weight, 1, 0, 100));
  const auto deviation = [](const std::vector<float>& all) {
    double squares = 0;
    for (const float value : all) squares += static_cast<double>(value) * value;
    return std::sqrt(squares / static_cast<double>(all.size()));
  };
  EXPECT_NEAR(deviation(whole), 0.02, 0.001);
  EXPECT_NEAR(deviation(values("transformer.h.1.mlp.c_proj.weight", 1, 0, 288 * 72)), 0.02 / std::sqrt(6.0), 0.001);
  EXPECT_NEAR(deviation(values("transformer.h.1.attn.c_proj.weight", 1, 0, 72 * 72)), 0.02 / std::sqrt(6.0), 0.001);
  // The same in every version: a run that is begun anew is compared with older ones.
  EXPECT_FLOAT_EQ(whole[0], -0.000914133804f);
  EXPECT_FLOAT_EQ(values("transformer.h.1.mlp.c_proj.weight", 1, 0, 2)[1], -0.00576441101f);
  EXPECT_EQ(values("transformer.ln_f.weight", 1, 0, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(values("transformer.h.0.ln_1.bias", 1, 0, 2), (std::vector<float>{0, 0}));
}

TEST(Gpt2, refuses_what_it_cannot_train) {
  EXPECT_THROW(Gpt2(small(), {.sequence = 41}), ConfigError);
  EXPECT_THROW(Gpt2(small(), {.batch = 0}), ConfigError);
  Gpt2 model(small(), {.batch = 2, .sequence = 3});
  std::vector<int64_t> ids(6, 330), targets(6, kIgnoredTarget);
  EXPECT_NO_THROW(model.compute({.ids = ids, .targets = targets}));
  EXPECT_THROW(model.compute({.ids = std::span(ids).first(5), .targets = std::span(targets).first(5)}), ConfigError);
  ids[4] = 331;
  EXPECT_THROW(model.compute({.ids = ids, .targets = targets}), ConfigError);
  ids[4] = 0, targets[2] = -1;
  EXPECT_THROW(model.compute({.ids = ids, .targets = targets}), ConfigError);
  targets = {0, 330, 0, 330, 0, 331};
  EXPECT_THAT(message_of<ConfigError>([&] { model.compute({.ids = ids, .targets = targets}); }),
              ::testing::HasSubstr("target 5 of the batch is 331, outside the vocabulary of 331"));
}

TEST(Gpt2, takes_sequences_up_to_its_positions_and_as_many_as_products_of_sizes_can_be_of) {
  EXPECT_NO_THROW(Gpt2(small(), {.sequence = 40}));
  EXPECT_THROW(Gpt2(small(), {.sequence = -1}), ConfigError);
  constexpr int64_t kMost = (int64_t{1} << 28) / 40;
  EXPECT_NO_THROW(Gpt2(small(), {.batch = kMost}));
  EXPECT_THROW(Gpt2(small(), {.batch = kMost + 1}), ConfigError);
  Gpt2Config many_heads = small();
  many_heads.n_embd = many_heads.n_head = 1 << 18;
  many_heads.n_positions = 1 << 26;
  EXPECT_THAT(message_of<ConfigError>([&] { Gpt2(many_heads, {.batch = 4}); }),
              ::testing::HasSubstr("scores of attention"));
}

TEST(Gpt2, refuses_batches_and_prompts_that_are_none) {
  Gpt2 model(small(), {.batch = 2, .sequence = 3});
  const std::vector<int64_t> ids(12, 330);
  const auto some = [&](size_t count) { return std::span(ids).first(count); };
  EXPECT_THROW(model.compute({.ids = some(12), .targets = some(6)}), ConfigError);
  EXPECT_THROW(model.compute({.ids = {}, .targets = {}}), ConfigError);
  std::vector<float> logits(331);
  EXPECT_NO_THROW(model.next_token_logits(some(3), logits));
  EXPECT_THROW(model.next_token_logits(some(4), logits), ConfigError);
  EXPECT_THROW(model.next_token_logits({}, logits), ConfigError);
  EXPECT_THROW(model.next_token_logits(some(3), std::span(logits).first(330)), std::logic_error);
  EXPECT_THROW(model.next_token_logits(std::vector<int64_t>{331}, logits), ConfigError);
}

TEST(Gpt2Config, takes_the_last_value_of_each_limit) {
  const auto is_taken = [](const auto& change) {
    Gpt2Config config;
    change(config);
    try {
      config.validate();
    } catch (const ConfigError&) {
      return false;
    }
    return true;
  };
  EXPECT_TRUE(is_taken([](Gpt2Config& c) { c.n_layer = 1 << 14; }));
  EXPECT_FALSE(is_taken([](Gpt2Config& c) { c.n_layer = (1 << 14) + 1; }));
  EXPECT_TRUE(is_taken([](Gpt2Config& c) { c.activation_function = "gelu_pytorch_tanh"; }));
  EXPECT_TRUE(is_taken([](Gpt2Config& c) { c.initializer_range = 0; }));
  EXPECT_FALSE(is_taken([](Gpt2Config& c) { c.initializer_range = -0.1; }));
  EXPECT_FALSE(is_taken([](Gpt2Config& c) { c.initializer_range = std::nan(""); }));
  EXPECT_FALSE(is_taken([](Gpt2Config& c) { c.embd_pdrop = -0.1; }));
  for (const int64_t more : {0, 1}) {
    EXPECT_EQ(is_taken([&](Gpt2Config& c) { c.n_positions = (1 << 26) + more; }), more == 0);
    EXPECT_EQ(is_taken([&](Gpt2Config& c) { c.n_head = 1, c.n_inner = 1, c.n_embd = (1 << 20) + more; }), more == 0);
    EXPECT_EQ(is_taken([&](Gpt2Config& c) { c.n_inner = (1 << 22) + more; }), more == 0);
  }
}

TEST(Gpt2Config, gives_a_heads_second_product_a_quarter_of_its_tiles_as_near_as_may_be) {
  const auto tiles = [](int64_t of_a_head) {
    Gpt2Config config;
    config.n_embd = 64, config.n_head = 4, config.tiling.linear = 4 * of_a_head;
    const auto [input, output] = config.product_tiles();
    return std::pair(input, output);
  };
  EXPECT_EQ(tiles(2), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(tiles(5), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(tiles(6), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(tiles(7), std::pair(int64_t{5}, int64_t{2}));
  EXPECT_EQ(tiles(100), std::pair(int64_t{16}, int64_t{16})) << "a head has no more features";
}

TEST(Gpt2, makes_a_loss_tile_of_about_eight_mi_logits) {
  Gpt2Config config;
  EXPECT_EQ(Gpt2(config, {.batch = 4, .sequence = 256}).options().loss_tile_tokens, (8 << 20) / 50257);
  EXPECT_EQ(Gpt2(small(), {.batch = 2}).options().loss_tile_tokens, 80);
  EXPECT_EQ(Gpt2(small(), {.batch = 2, .loss_tile_tokens = 7}).options().loss_tile_tokens, 7);
  EXPECT_EQ(Gpt2(small(), {.batch = 2, .loss_tile_tokens = 1000}).options().loss_tile_tokens, 80);
  EXPECT_THROW(Gpt2(small(), {.batch = 2, .loss_tile_tokens = -1}), ConfigError);
  const Gpt2Options on_gpu{.batch = 4, .sequence = 512, .device = DeviceKind::kCuda};
  EXPECT_EQ(Gpt2(config, on_gpu).options().loss_tile_tokens, (64 << 20) / 50257);
  config.vocab_size = 1 << 24;
  EXPECT_EQ(Gpt2(config, {.batch = 4, .sequence = 256}).options().loss_tile_tokens, 1);
}

// None is none where one alone is too many, as a loop over none would not end.
TEST(Grain, is_one_row_or_column_at_the_least) {
  const HeadGrain grain{.loss_tile = 100, .softmax = 50, .gradient = 30};
  EXPECT_EQ(default_loss_tile_tokens(grain, 10, 1000), 10);
  EXPECT_EQ(default_loss_tile_tokens(grain, 101, 1000), 1);
  EXPECT_EQ(softmax_rows(grain, 10), 5);
  EXPECT_EQ(softmax_rows(grain, 51), 1);
  EXPECT_EQ(head_gradient_rows(grain, 10), 3);
  EXPECT_EQ(head_gradient_rows(grain, 31), 1);
  EXPECT_EQ(product_columns(1 << 20, 1), 2);
  EXPECT_EQ(product_columns(1, 1 << 20), 2) << "the larger of both";
  EXPECT_EQ(product_columns(1 << 22, 1), 1);
}

TEST(TileRanges, follow_each_other_over_all_that_is_cut_and_differ_by_one_at_the_most) {
  for (const auto& range_of : {tile_range, inner_tile_range}) {
    for (int64_t count = 1; count <= 40; ++count) {
      for (int64_t tiles = 1; tiles <= count; ++tiles) {
        int64_t end = 0;
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const TileRange range = range_of(count, tiles, tile);
          ASSERT_EQ(range.first, end) << count << " " << tiles << " " << tile;
          ASSERT_TRUE(range.size() == count / tiles || range.size() == count / tiles + 1);
          end = range.end;
        }
        ASSERT_EQ(end, count) << tiles;
        if (tiles > 1) {
          ASSERT_GE(range_of(count, tiles, 1).size(), range_of(count, tiles, tiles - 1).size());
        }
      }
    }
  }
}

TEST(Workspace, is_the_same_each_time_it_is_measured) {
  set_process({.compute_threads = kComputeThreads});
  Gpt2 model(small(), {.batch = 3, .sequence = 33});
  const int64_t bytes = model.measure_memory().workspace_bytes;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(model.measure_memory().workspace_bytes, bytes);
}

TEST(VisitTimes, are_measured_for_every_visit_and_a_sink_has_no_forward_of_its_own) {
  set_process({.compute_threads = kComputeThreads});
  for (const bool tied : {true, false}) {
    Gpt2Config config = small();
    config.tie_word_embeddings = tied;
    if (!tied) config.tiling = {4, 50};
    Gpt2 model(config, {.batch = 3, .sequence = 33});
    const std::vector<VisitTime> times = model.measure_visits(model.measure_memory());
    ASSERT_EQ(times.size(), model.spec().visits.size());
    for (const VisitTime& time : times) EXPECT_GT(time.backward_ms, 0);
    for (size_t i = 0; i + 1 < times.size(); ++i) EXPECT_GT(times[i].forward_ms, 0);
    EXPECT_EQ(times.back().forward_ms, 0);
    for (size_t i = 0; i < times.size(); ++i) {
      const bool block = tied && model.spec().visits[i].name.starts_with("h.");
      EXPECT_EQ(times[i].keeping_forward_ms > 0, block);
      EXPECT_EQ(times[i].kept_backward_ms > 0, block);
    }
  }
}

// Turns of one kind are as many as no cache holds: of the tiny ones all, of blocks no more for more layers.
TEST(VisitTimes, are_measured_in_the_memory_of_a_few_turns_beside_the_workspace) {
  const auto bytes = [](int64_t layers, int64_t workspace_bytes, int64_t graph_bytes) {
    Gpt2Config config = small();
    config.n_layer = layers;
    const Gpt2 model(config, {.batch = 3, .sequence = 33});
    ComputeMemory memory{.workspace_bytes = workspace_bytes,
                         .graph_bytes = std::vector<int64_t>(model.spec().visits.size(), 0)};
    for (size_t block = 1; block <= static_cast<size_t>(layers); ++block) memory.graph_bytes[block] = graph_bytes;
    return model.bytes_to_measure_visits(memory);
  };
  const int64_t of_one = bytes(1, 0, 0);
  EXPECT_EQ(bytes(1, 1000, 0), of_one + 1024);
  EXPECT_EQ(bytes(1, 0, 1000), of_one + 1024);
  EXPECT_EQ(bytes(4, 0, 1000), 4 * bytes(1, 0, 1000));
  const int64_t most = bytes(200, 0, 0);
  EXPECT_GE(most, 64 << 20);
  EXPECT_EQ(bytes(230, 0, 0), most);
}

TEST(VisitTimes, need_a_tenth_of_a_second_of_runs_and_two_or_one_of_five_seconds) {
  constexpr int64_t kMs = 1'000'000;
  EXPECT_FALSE(are_enough_runs(0, 0));
  EXPECT_FALSE(are_enough_runs(0, 5000 * kMs)) << "something else took them";
  EXPECT_FALSE(are_enough_runs(1, 4999 * kMs));
  EXPECT_TRUE(are_enough_runs(1, 5000 * kMs));
  EXPECT_FALSE(are_enough_runs(2, 99 * kMs));
  EXPECT_TRUE(are_enough_runs(2, 100 * kMs));
}

// Of a step's operations, its forward is a third. A block runs forward, evaluation, backward with recomputation, and
// once more forward and backward with a graph kept; the head evaluation and both in one.
TEST(Trial, computes_one_block_of_each_kind_in_every_pass) {
  Gpt2Config config = small();
  config.vocab_size = 330;
  const Gpt2Options options{.batch = 3, .sequence = 33};
  const auto flops = [&](int64_t layers) {
    config.n_layer = layers;
    return Gpt2(config, options).trial_flops();
  };
  const auto forward_flops = [&](int64_t layers) {
    config.n_layer = layers;
    return Gpt2(config, options).training_flops_per_token() / 3 * 3 * 33;
  };
  const double block = forward_flops(2) - forward_flops(1), head = forward_flops(1) - block;
  EXPECT_NEAR(flops(1), 8 * block + 4 * head, 1e-6 * flops(1));
  EXPECT_DOUBLE_EQ(flops(7), flops(1));
  config.tiling = {2, 5};
  EXPECT_NEAR(flops(7), 6 * (block + head * 2 / 5), 1e-6 * flops(1)) << "of five tiles the first and another one";
}

TEST(VisitTimes, of_a_machine_of_known_speed_are_the_operations_of_training_and_of_recomputing) {
  Gpt2Config of_odd_width = small();
  of_odd_width.n_inner = 100;
  const Gpt2 model(of_odd_width, {.batch = 3, .sequence = 33});
  const std::vector<VisitTime> times = model.estimate_visits(2);
  double ms = 0;
  for (const VisitTime& time : times) ms += time.backward_ms;  // blocks are recomputed in it
  EXPECT_NEAR(ms, model.training_flops_per_token() * 3 * 33 / 2e12 * 1e3, 1e-9);
  EXPECT_NEAR(times[1].forward_ms * 3, times[1].backward_ms, 1e-12);
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{2, 7}, Gpt2Tiling{8, 60}}) {
    Gpt2Config config = of_odd_width;
    config.tiling = tiling;
    double in_tiles_ms = 0;
    for (const VisitTime& time : Gpt2(config, {.batch = 3, .sequence = 33}).estimate_visits(2)) {
      in_tiles_ms += time.backward_ms;
    }
    EXPECT_NEAR(in_tiles_ms, ms, 1e-9);
  }
}

}  // namespace
}  // namespace sluice::testing
