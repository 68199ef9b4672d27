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
