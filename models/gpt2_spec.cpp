// The partitions, tensors and visits of a GPT-2.
#include <algorithm>
#include <string>

#include "models/gpt2_visits.h"

namespace sluice {
namespace {

constexpr int64_t kLossTileElements = int64_t{8} << 20;
constexpr int64_t kSoftmaxElements = int64_t{1} << 19;
constexpr int64_t kHeadGradientElements = int64_t{1} << 20;
constexpr int64_t kProductElements = int64_t{1} << 21;

PartitionSpec block_partition(const std::vector<ParameterSpec>& parameters, int64_t block) {
  PartitionSpec partition{.name = "h." + std::to_string(block), .parameters = parameters};
  for (ParameterSpec& parameter : partition.parameters) {
    parameter.name = "transformer." + partition.name + "." + parameter.name;
  }
  return partition;
}

PartitionSpec last_partition(const Gpt2Config& config) {
  PartitionSpec last{
      .name = "ln_f",
      .parameters = {{"transformer.ln_f.weight", {config.n_embd}}, {"transformer.ln_f.bias", {config.n_embd}}}};
  if (!config.tie_word_embeddings) {
    last.name = "head";
    last.parameters.push_back({"lm_head.weight", {config.vocab_size, config.n_embd}});
  }
  return last;
}

}  // namespace

std::vector<ParameterSpec> gpt2_block_parameters(const Gpt2Config& config) {
  const int64_t width = config.n_embd, inner = config.inner();
  return {{"ln_1.weight", {width}},
          {"ln_1.bias", {width}},
          {"attn.c_attn.weight", {width, 3 * width}},
          {"attn.c_attn.bias", {3 * width}},
          {"attn.c_proj.weight", {width, width}},
          {"attn.c_proj.bias", {width}},
          {"ln_2.weight", {width}},
          {"ln_2.bias", {width}},
          {"mlp.c_fc.weight", {width, inner}},
          {"mlp.c_fc.bias", {inner}},
          {"mlp.c_proj.weight", {inner, width}},
          {"mlp.c_proj.bias", {width}}};
}

ModelSpec gpt2_model_spec(const Gpt2Config& config, const Gpt2Options& options) {
  const int64_t width = config.n_embd;
  const int blocks = static_cast<int>(config.n_layer);
  ModelSpec spec;
  spec.partitions.push_back({"wte", {{"transformer.wte.weight", {config.vocab_size, width}}}});
  spec.partitions.push_back({"wpe", {{"transformer.wpe.weight", {config.n_positions, width}}}});
  const std::vector<ParameterSpec> block = gpt2_block_parameters(config);
  for (int i = 0; i < blocks; ++i) spec.partitions.push_back(block_partition(block, i));
  spec.partitions.push_back(last_partition(config));

  const int64_t elements = options.batch * options.sequence * width;
  for (int i = 0; i <= blocks; ++i) {
    spec.tensors.push_back({"x." + std::to_string(i), elements, weights_dtype(options.precision)});
  }
  spec.visits.push_back({.name = "embedding", .partitions = {0, 1}, .takes = {}, .gives = {0}});
  for (int i = 0; i < blocks; ++i) {
    spec.visits.push_back({.name = "h." + std::to_string(i), .partitions = {2 + i}, .takes = {i}, .gives = {i + 1}});
  }
  std::vector<int> last = {2 + blocks};
  if (config.tie_word_embeddings) last.push_back(0);
  spec.visits.push_back({.name = "head", .partitions = last, .takes = {blocks}, .gives = {}});
  return spec;
}

int64_t default_loss_tile_tokens(int64_t vocab_size, int64_t tokens) {
  return std::clamp<int64_t>(kLossTileElements / vocab_size, 1, tokens);
}
int64_t softmax_rows(int64_t vocab_size) { return std::max<int64_t>(1, kSoftmaxElements / vocab_size); }
int64_t head_gradient_rows(int64_t width) { return std::max<int64_t>(1, kHeadGradientElements / width); }
int64_t product_columns(int64_t left_rows, int64_t right_rows) {
  return std::max<int64_t>(1, kProductElements / std::max(left_rows, right_rows));
}

}  // namespace sluice
