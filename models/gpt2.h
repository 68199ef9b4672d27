// GPT-2 as a list of visits built from LibTorch modules: embedding, one visit per block, head. No LibTorch in this
// header.
//
// Visits and partitions (parameters are named as in Hugging Face's GPT2LMHeadModel):
//   "embedding"        wte, wpe                               gives "x.0"
//   "h.0" .. "h.N-1"   one partition each                     takes "x.i", gives "x.i+1"
//   "head"             ln_f, and wte (tied) or lm_head        takes "x.N"; a sink: loss in tiles of tokens
// In tiles (Gpt2Tiling), visits in place of one; those of a row all give the same tensor, each adding to what it finds:
//   "embedding.J"      rows J of wte, and of wpe if any       gives "x.0"
//   "h.I.attn.J"       ln_1; heads J of attention             takes "x.I", gives "y.I"
//   "h.I.mlp.J"        ln_2; hidden features J of the MLP     takes "y.I", gives "x.I+1"
//   "head.J"           ln_f; rows J of wte or lm_head         takes "x.N", gives "statistics" of the softmax
//   "loss"             nothing                                takes "statistics"; the sink
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "engine/engine.h"
#include "engine/machine.h"
#include "engine/model.h"
#include "models/parameter_tiles.h"

namespace sluice {

// How many tiles a layer runs in, each a partition and a visit of its own: how much of its weights is on the device at
// once. Changes the order of sums, so it is the model's, and a store's for good. 1: whole.
struct Gpt2Tiling {
  int64_t linear = 1;     // of the MLP (between hidden features), and of attention (between heads: no more than those)
  int64_t embedding = 1;  // of wte and the head (between rows of the vocabulary), and of wpe (no more than its rows)
  bool operator==(const Gpt2Tiling&) const = default;
};

// Hugging Face's GPT2Config, names and defaults alike, except that dropout defaults to 0 and nothing else is accepted.
struct Gpt2Config {
  int64_t vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12;
  int64_t n_inner = 0;  // width of the MLP; 0: 4 x n_embd
  std::string activation_function = "gelu_new";
  double layer_norm_epsilon = 1e-5, initializer_range = 0.02;
  bool tie_word_embeddings = true;
  bool scale_attn_weights = true;
  double resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0;
  int64_t bos_token_id = -1, eos_token_id = -1;  // -1: none; only carried into an exported config.json
  Gpt2Tiling tiling;                             // no part of Hugging Face's

  int64_t inner() const { return n_inner > 0 ? n_inner : 4 * n_embd; }
  // Attention is cut between its heads or, in more tiles than it has, each head between the features of its two
  // products: three fourths of its tiles for the first (queries, keys and values) and the rest for the second, as near
  // as may be.
  bool cuts_heads() const { return tiling.linear > n_head; }
  struct ProductTiles {
    int64_t input = 1, output = 1;
  };
  ProductTiles product_tiles() const;  // of each head
  // Of a part that is cut into fewer tiles than the tiling says where it has no more rows.
  int64_t position_tiles() const;
  // Throws ConfigError naming "model.<key>", its value and what is allowed.
  void validate() const;
};

// What is fixed when a run is planned.
struct Gpt2Options {
  Precision precision = Precision::kBf16;
  int64_t batch = 1;                      // sequences in a micro-batch
  int64_t sequence = 0;                   // tokens in a sequence; 0: n_positions
  int64_t loss_tile_tokens = 0;           // tokens whose logits exist at once; 0: from the shape and the device alone
  DeviceKind device = DeviceKind::kHost;  // where it computes: kHost, or kCuda (libtorch/compute_device.h)
};

constexpr int64_t kIgnoredTarget = -100;

// Tokens of a step, [micro_batches][batch][sequence], and for each the token that should follow, or kIgnoredTarget.
struct TokenBatches {
  std::span<const int64_t> ids, targets;
};

// Device memory that compute needs, for one micro-batch.
struct ComputeMemory {
  int64_t workspace_bytes = 0;
  std::vector<int64_t> graph_bytes;  // PlanOptions::graph_bytes
};

// Not synchronised: one call at a time.
class Gpt2 {
 public:
  // Throws ConfigError: a bad configuration, a sequence longer than n_positions.
  Gpt2(Gpt2Config config, Gpt2Options options);
  ~Gpt2();
  Gpt2(Gpt2&&) noexcept;
  Gpt2& operator=(Gpt2&&) noexcept;

  const Gpt2Config& config() const;
  const Gpt2Options& options() const;  // with defaults filled in
  const ModelSpec& spec() const;
  const ParameterTiles& tiles() const;      // of the spec's parameters that are cut
  int64_t parameter_count() const;          // a tied embedding once
  double training_flops_per_token() const;  // forward and backward, recompute left out

  // Weights normal(0, initializer_range), those that write into the residual stream scaled by 1 / sqrt(2 n_layer),
  // biases 0, LayerNorm 1: a function of seed, name and element, cut or not. Safe to use after the Gpt2 has gone.
  ParameterSource initial_values(uint64_t seed) const;

  // What forward and backward of one micro-batch need: measured by running one of each kind of block on made-up values
  // (set_process first: threads have scratch of their own), or by a closed form that runs nothing.
  ComputeMemory measure_memory();
  ComputeMemory estimate_memory() const;
  int64_t bytes_to_measure_memory() const;  // on the device meanwhile, about
  double trial_flops() const;               // of the matrix products that measure_memory() computes
  // What each visit takes for one micro-batch: measured, one of each kind in the memory that measure_memory() gave (a
  // second or so; before the arenas are taken), or matrix products alone at a speed.
  std::vector<VisitTime> measure_visits(const ComputeMemory& memory);
  int64_t bytes_to_measure_visits(const ComputeMemory& memory) const;  // on the device meanwhile
  std::vector<VisitTime> estimate_visits(double tflop_per_s) const;
  // To be called for every engine that the calls below are for, which is on options().device: their temporaries are in
  // its workspace, and they compute in its order. On the CPU LibTorch's own allocator serves where none is in use.
  void use_memory(const Engine& engine);
  // Before that engine goes: another one's memory may get its addresses.
  void leave_memory();
  int64_t workspace_peak_bytes() const;  // high-water mark since use_memory

  // For train_step (every micro-batch) and evaluate (the mean loss). The tokens must outlive the returned callable, and
  // it must not outlive the Gpt2. Throws ConfigError for an id outside the vocabulary.
  Compute compute(TokenBatches tokens);
  // For evaluate(1, ...): fp32 logits of the token that follows `ids` (1 to `sequence` of them, one sequence).
  // `logits` holds vocab_size values.
  Compute next_token_logits(std::span<const int64_t> ids, std::span<float> logits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
