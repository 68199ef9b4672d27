// A GPT-2's visits, all in memory, against transformers' GPT2LMHeadModel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/hugging_face.h"
#include "tests/models/memory_model.h"
#include "tests/models/reference.h"

namespace sluice::testing {
namespace {

Gpt2Tokens micro_batch(const std::vector<int64_t>& ids, const std::vector<int64_t>& targets, int64_t index) {
  const auto part = [&](const std::vector<int64_t>& all) {
    return std::span(all).subspan(static_cast<size_t>(index * kMicroBatchTokens),
                                  static_cast<size_t>(kMicroBatchTokens));
  };
  return {.batch = kBatch, .sequence = kSequence, .ids = part(ids), .targets = part(targets), .logits = {}};
}

ModelSection section_of(const std::string& name) {
  return read_model_section("{\"path\": \"" + Reference::get().folder(name) + "\"}");
}

MemoryModel load(const std::string& name, Precision precision, int64_t tile_tokens = 0, Gpt2Tiling tiling = {}) {
  ModelSection section = section_of(name);
  section.config.tiling = tiling;
  const Gpt2Options options{
      .precision = precision, .batch = kBatch, .sequence = kSequence, .loss_tile_tokens = tile_tokens};
  return {section.config, options, hugging_face_source(section.folder, Gpt2(section.config, options))};
}

// The largest difference, relative to the largest value of the reference.
double distance(std::span<const float> ours, std::span<const float> reference) {
  EXPECT_EQ(ours.size(), reference.size());
  double difference = 0, largest = 0;
  for (size_t i = 0; i < std::min(ours.size(), reference.size()); ++i) {
    const double here = std::abs(static_cast<double>(ours[i]) - reference[i]);
    difference = std::isnan(here) ? HUGE_VAL : std::max(difference, here);
    largest = std::max(largest, std::abs(static_cast<double>(reference[i])));
  }
  return difference / std::max(largest, 1e-30);
}

void expect_gradients(const MemoryModel& model, const std::string& name, int index, double tolerance) {
  const Gpt2 whole(section_of(name).config, {});
  for (const PartitionSpec& partition : whole.spec().partitions) {
    for (const ParameterSpec& parameter : partition.parameters) {
      const auto wanted = Reference::get().values(name + ".gradient." + std::to_string(index) + "." + parameter.name);
      EXPECT_LT(distance(model.gradient(parameter.name), wanted), tolerance)
          << name << " " << index << " " << parameter.name;
    }
  }
}

class Gradients : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(Gradients, are_those_of_transformers_in_fp32_whatever_the_loss_tile) {
  const auto& [name, tile_tokens] = GetParam();
  MemoryModel model = load(name, Precision::kFp32, tile_tokens);
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  for (const int index : {0, 1}) {
    const double wanted = Reference::get().values(std::string(name) + ".loss." + std::to_string(index))[0];
    EXPECT_NEAR(model.evaluate(micro_batch(ids, targets, index)) / wanted, 1, 1e-5);
    EXPECT_NEAR(model.train(micro_batch(ids, targets, index)) / wanted, 1, 1e-5);
    expect_gradients(model, name, index, 2e-5);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, Gradients,
                         ::testing::Combine(::testing::Values("tied", "untied"), ::testing::Values<int64_t>(0, 7, 1)));

class TiledGradients : public ::testing::TestWithParam<std::tuple<const char*, Gpt2Tiling>> {};

TEST_P(TiledGradients, are_those_of_transformers_in_fp32) {
  const auto& [name, tiling] = GetParam();
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  for (const int64_t tile_tokens : {0, 7}) {
    MemoryModel model = load(name, Precision::kFp32, tile_tokens, tiling);
    for (const int index : {0, 1}) {
      const double wanted = Reference::get().values(std::string(name) + ".loss." + std::to_string(index))[0];
      EXPECT_NEAR(model.evaluate(micro_batch(ids, targets, index)) / wanted, 1, 1e-5);
      EXPECT_NEAR(model.train(micro_batch(ids, targets, index)) / wanted, 1, 1e-5);
      expect_gradients(model, name, index, 2e-5);
    }
  }
}
// Even tiles, uneven ones, positions that no sequence has, one tile of either kind, more than heads and positions.
INSTANTIATE_TEST_SUITE_P(Models, TiledGradients,
                         ::testing::Combine(::testing::Values("tied", "untied"),
                                            ::testing::Values(Gpt2Tiling{3, 2}, Gpt2Tiling{2, 7}, Gpt2Tiling{1, 40},
                                                              Gpt2Tiling{3, 1}, Gpt2Tiling{8, 50})));

TEST(Gradients, are_close_in_half_precision) {
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  for (const auto& [precision, loss_tolerance, tolerance] :
       {std::tuple{Precision::kBf16, 1e-2, 0.1}, {Precision::kFp16, 1e-3, 0.02}}) {
    for (const Gpt2Tiling& tiling : {Gpt2Tiling{}, Gpt2Tiling{3, 4}}) {
      MemoryModel model = load("tied", precision, 0, tiling);
      const double wanted = Reference::get().values("tied.loss.0")[0];
      EXPECT_NEAR(model.train(micro_batch(ids, targets, 0)) / wanted, 1, loss_tolerance);
      expect_gradients(model, "tied", 0, tolerance);
    }
  }
}

TEST(Gradients, are_zero_and_so_is_the_loss_without_a_target) {
  const std::vector<int64_t> ids = Reference::get().ids();
  const std::vector<int64_t> none(ids.size(), kIgnoredTarget);
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{}, Gpt2Tiling{2, 3}}) {
    MemoryModel model = load("tied", Precision::kFp32, 0, tiling);
    EXPECT_EQ(model.train(micro_batch(ids, none, 0)), 0.0);
    for (const char* name :
         {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"}) {
      const std::vector<float> gradient = model.gradient(name);
      EXPECT_FALSE(gradient.empty());
      EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [](float g) { return g == 0; })) << name;
    }
  }
}

TEST(Gradients, are_times_the_loss_scale_and_the_loss_is_not) {
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  for (const Gpt2Tiling& tiling : {Gpt2Tiling{}, Gpt2Tiling{2, 3}}) {
    MemoryModel model = load("tied", Precision::kFp32, 0, tiling), scaled = load("tied", Precision::kFp32, 0, tiling);
    scaled.set_loss_scale(1024);
    EXPECT_EQ(scaled.train(micro_batch(ids, targets, 0)), model.train(micro_batch(ids, targets, 0)));
    for (const char* name :
         {"transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"}) {
      std::vector<float> wanted = model.gradient(name);
      for (float& value : wanted) value *= 1024;
      EXPECT_LT(distance(scaled.gradient(name), wanted), 1e-6) << name;
    }
  }
}

// Between -1 and 1, and made in no time.
void simple_values(const Parameter&, int64_t first, std::span<float> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    into[i] = static_cast<float>((static_cast<uint64_t>(first) + i) * 7919 % 2003) / 1001 - 1;
  }
}

struct OwnModel {
  Gpt2Config config;
  Gpt2Options options{.precision = Precision::kFp32, .batch = 2, .sequence = 16};
  MemoryModel make() const { return {config, options, Gpt2(config, options).initial_values(1)}; }
  MemoryModel make_at_once() const { return {config, options, Gpt2(config, options).tiles().cut(simple_values)}; }
};
OwnModel own_model(int64_t vocabulary) {
  OwnModel own;
  own.config.vocab_size = vocabulary, own.config.n_positions = 16, own.config.n_embd = 8, own.config.n_layer = 1;
  own.config.n_head = 2, own.config.initializer_range = 1;
  return own;
}

// The softmax takes a few of a loss tile's tokens at a time, 30 of so large a vocabulary, and the weight's gradient is
// made in slices of 16384 rows.
TEST(Gradients, of_a_large_vocabulary_are_those_of_token_after_token) {
  constexpr int64_t kVocabulary = 17'000, kWidth = 64;
  std::vector<int64_t> ids(32), targets(32);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i * 1237 % kVocabulary), targets[i] = static_cast<int64_t>(i * 7919 % kVocabulary);
  }
  const Gpt2Tokens tokens{.batch = 2, .sequence = 16, .ids = ids, .targets = targets, .logits = {}};
  OwnModel one_by_one = own_model(kVocabulary);
  one_by_one.config.n_embd = kWidth;
  one_by_one.options.loss_tile_tokens = 1;
  MemoryModel wanted = one_by_one.make_at_once();
  const double loss = wanted.train(tokens);
  for (const int64_t tiles : {1, 3}) {
    OwnModel at_once = own_model(kVocabulary);
    at_once.config.n_embd = kWidth;
    at_once.config.tiling.embedding = tiles;
    MemoryModel model = at_once.make_at_once();
    EXPECT_NEAR(model.evaluate(tokens) / loss, 1, 1e-5);
    EXPECT_NEAR(model.train(tokens) / loss, 1, 1e-5);
    for (const char* name : {"transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight", "transformer.ln_f.weight"}) {
      EXPECT_LT(distance(model.gradient(name), wanted.gradient(name)), 1e-3) << name << " " << tiles;
    }
  }
}

// Their exponentials are no numbers in fp32.
TEST(Gradients, of_large_logits_are_finite_and_the_same_in_tiles) {
  const std::vector<int64_t> ids(32, 7);
  std::vector<int64_t> targets(32);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int64_t>(i);
  const Gpt2Tokens tokens{.batch = 2, .sequence = 16, .ids = ids, .targets = targets, .logits = {}};
  OwnModel own = own_model(50);
  own.config.initializer_range = 100;
  MemoryModel whole = own.make();
  const double loss = whole.train(tokens);
  EXPECT_GT(loss, 100);
  EXPECT_TRUE(std::isfinite(loss));
  for (const int64_t tiles : {2, 50}) {
    own.config.tiling.embedding = tiles;
    MemoryModel in_tiles = own.make();
    EXPECT_NEAR(in_tiles.train(tokens) / loss, 1, 1e-5);
    for (const char* name : {"transformer.wte.weight", "transformer.ln_f.weight"}) {
      EXPECT_LT(distance(in_tiles.gradient(name), whole.gradient(name)), 1e-2) << name << " " << tiles;
    }
  }
}

// A CPU without a kernel for fp16 widens some columns at a time: 65536 of these. The later ones alone are not off.
TEST(Gradients, in_fp16_of_more_hidden_features_than_are_widened_at_once_are_those_of_fp32) {
  const std::vector<int64_t> ids(32, 7), targets(32, 3);
  const Gpt2Tokens tokens{.batch = 2, .sequence = 16, .ids = ids, .targets = targets, .logits = {}};
  OwnModel own = own_model(10);
  own.config.n_inner = 66'000;
  const ParameterSource with_bias = [](const Parameter& parameter, int64_t first, std::span<float> into) {
    simple_values(parameter, first, into);
    if (parameter.name != "transformer.h.0.mlp.c_fc.bias") return;
    for (size_t i = 0; i < into.size(); ++i) into[i] = first + static_cast<int64_t>(i) < 65'536 ? -20 : 2;
  };
  MemoryModel wanted(own.config, own.options, with_bias);
  const double loss = wanted.train(tokens);
  own.options.precision = Precision::kFp16;
  MemoryModel narrow(own.config, own.options, with_bias);
  EXPECT_NEAR(narrow.train(tokens) / loss, 1, 1e-2);
  for (const char* name : {"transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_fc.bias"}) {
    EXPECT_LT(distance(narrow.gradient(name), wanted.gradient(name)), 0.05) << name;
  }
}

// Scores are then as of queries of twice the size: a head has four features.
TEST(Attention, without_a_scale_is_that_of_larger_queries_with_it) {
  std::vector<int64_t> ids(32), targets(32);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i * 7 % 50), targets[i] = static_cast<int64_t>(i * 11 % 50);
  }
  const Gpt2Tokens tokens{.batch = 2, .sequence = 16, .ids = ids, .targets = targets, .logits = {}};
  const OwnModel scaled = own_model(50);
  OwnModel unscaled = scaled;
  unscaled.config.scale_attn_weights = false;
  const ParameterSource values = Gpt2(scaled.config, scaled.options).initial_values(1);
  MemoryModel larger(scaled.config, scaled.options,
                     [&](const Parameter& parameter, int64_t first, std::span<float> into) {
                       values(parameter, first, into);
                       if (parameter.name != "transformer.h.0.attn.c_attn.weight") return;
                       for (size_t i = 0; i < into.size(); ++i) {
                         if ((first + static_cast<int64_t>(i)) % 24 < 8)
                           into[i] *= 2;  // of a row: queries, keys and values
                       }
                     });
  const double wanted = larger.evaluate(tokens);
  EXPECT_NEAR(unscaled.make().evaluate(tokens) / wanted, 1, 1e-6);
  EXPECT_GT(std::abs(scaled.make().evaluate(tokens) / wanted - 1), 1e-4);
}

// To fp32 alone the mean would differ in the eighth digit.
TEST(Losses, of_tokens_are_summed_in_fp64_whatever_the_tiles) {
  std::vector<int64_t> ids(12), targets(12);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int64_t>(i * 7 % 50), targets[i] = static_cast<int64_t>(i * 11 % 50);
  }
  for (const auto& [tile_tokens, tiling] : {std::pair{int64_t{0}, Gpt2Tiling{}}, {5, {}}, {0, {1, 3}}, {5, {1, 3}}}) {
    OwnModel own = own_model(50);
    own.options.loss_tile_tokens = tile_tokens;
    own.config.tiling = tiling;
    MemoryModel model = own.make();
    const auto loss_of = [&](const std::vector<int64_t>& some) {
      return model.evaluate({.batch = 1, .sequence = 12, .ids = ids, .targets = some, .logits = {}});
    };
    double sum = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      std::vector<int64_t> one(targets.size(), kIgnoredTarget);
      one[i] = targets[i];
      sum += loss_of(one);
    }
    const double mean = sum / static_cast<double>(targets.size());
    EXPECT_NEAR(loss_of(targets) / mean, 1, 1e-13);
    EXPECT_NEAR(model.train({.batch = 1, .sequence = 12, .ids = ids, .targets = targets, .logits = {}}) / mean, 1,
                1e-13);
  }
}

TEST(Gradients, and_losses_keep_their_bits_from_run_to_run_and_in_a_workspace) {
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    MemoryModel model = load("tied", precision);
    const double loss = model.train(micro_batch(ids, targets, 0));
    const std::vector<float> gradient = model.gradient("transformer.h.1.mlp.c_fc.weight");
    const Bytes memory(int64_t{1} << 24);
    Workspace workspace({memory.data(), size_t{1} << 24});
    EXPECT_EQ(model.train(micro_batch(ids, targets, 0), &workspace), loss);
    EXPECT_EQ(model.gradient("transformer.h.1.mlp.c_fc.weight"), gradient);
    EXPECT_GT(workspace.high_water_bytes(), 0);
    EXPECT_EQ(workspace.bytes_in_use(), 0);
  }
}

TEST(Logits, of_a_short_prompt_are_those_of_transformers) {
  for (const auto& [name, tiling] :
       {std::pair{"tied", Gpt2Tiling{}}, {"untied", {}}, {"tied", {3, 2}}, {"untied", {2, 7}}}) {
    MemoryModel model = load(name, Precision::kFp32, 0, tiling);
    const std::vector<int64_t> ids = Reference::get().ids();
    const std::vector<float> wanted = Reference::get().values(std::string(name) + ".logits");
    std::vector<float> logits(wanted.size());
    model.evaluate({.batch = 1,
                    .sequence = kPrompt,
                    .ids = std::span(ids).first(static_cast<size_t>(kPrompt)),
                    .targets = {},
                    .logits = logits});
    EXPECT_LT(distance(logits, wanted), 1e-5) << name;
  }
}

TEST(Folder, gives_the_same_weights_sharded_renamed_and_in_half_precision) {
  const std::vector<int64_t> ids = Reference::get().ids(), targets = Reference::get().targets();
  const double wanted = Reference::get().values("tied.loss.0")[0];
  for (const auto& [name, tolerance] :
       {std::pair{"sharded", 1e-5}, {"plain_names", 1e-5}, {"fp16", 1e-3}, {"bf16", 1e-2}}) {
    MemoryModel model = load(name, Precision::kFp32);
    EXPECT_NEAR(model.evaluate(micro_batch(ids, targets, 0)) / wanted, 1, tolerance) << name;
  }
}

}  // namespace
}  // namespace sluice::testing
