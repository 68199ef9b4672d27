// The kinds of visits of a GPT-2, each around a LibTorch module whose parameters are empty except while a visit runs,
// when they are views of planned device memory. No LibTorch in this header.
//
// Bits: a visit's results depend on its values, shapes and LibTorch's thread count alone. Gradients are recomputed with
// autograd from the visit's input, unless its forward kept the graph (VisitTurn::graph()); each is contributed as soon
// as it is known, so that few live at once.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/visit_turn.h"
#include "models/gpt2.h"

namespace sluice {

// The micro-batch a visit works on: `batch` sequences of `sequence` tokens, no more than its boundary tensors hold.
struct Gpt2Tokens {
  int64_t batch = 1, sequence = 1;
  std::span<const int64_t> ids;      // the embedding reads them
  std::span<const int64_t> targets;  // the head reads them
  std::span<float> logits;           // kEvaluate, where given: the head fills it for the last token and reports no loss
  int64_t count() const { return batch * sequence; }
};

// The embedding's weights, whole and tiled, by their index in its partition.
enum EmbeddingWeight : int { kWte, kWpe };

// One kind of visit. `tile`: which of its layer's tiles runs, 0 where the layer is whole.
class Gpt2Visit {
 public:
  virtual ~Gpt2Visit() = default;
  virtual void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) = 0;
  // The most bytes of a turn's graph() that a forward has used so far; 0: this kind never keeps one.
  virtual int64_t graph_peak_bytes() const { return 0; }
  // Lets go of graphs whose backward has not come, before the memory that they are in goes.
  virtual void forget_graphs() {}
};

enum class Gpt2Kind : uint8_t {
  kEmbedding,
  kBlock,
  kHead,
  kEmbeddingTile,
  kAttentionTile,
  kMlpTile,
  kHeadTile,
  kLoss,
  kAttentionInput,  // attention in more tiles than heads
  kAttentionMixing,
  kAttentionOutput,
};
constexpr int kGpt2Kinds = 11;

std::unique_ptr<Gpt2Visit> make_gpt2_embedding(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_block(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_head(const Gpt2Config& config, const Gpt2Options& options);
std::unique_ptr<Gpt2Visit> make_gpt2_embedding_tile(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_attention_tile(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_attention_input(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_attention_mixing(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_attention_output(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_mlp_tile(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_head_tile(const Gpt2Config& config, const Gpt2Options& options);
std::unique_ptr<Gpt2Visit> make_gpt2_loss(const Gpt2Config& config);

struct Gpt2Role {
  Gpt2Kind kind = Gpt2Kind::kBlock;
  int tile = 0;
};
// What a GPT-2 is made of: `roles` are those of spec.visits.
struct Gpt2Layout {
  ModelSpec spec;
  std::vector<Gpt2Role> roles;
  ParameterTiles tiles;
  // The first visit that differs from this one in values alone: what is measured in its place.
  int first_like(int visit) const;
};
Gpt2Layout gpt2_layout(const Gpt2Config& config, const Gpt2Options& options);

// Every visit of a layout.
class Gpt2Visits {
 public:
  // `options` with defaults filled in.
  Gpt2Visits(const Gpt2Config& config, const Gpt2Options& options);
  const Gpt2Layout& layout() const { return layout_; }
  void run(int visit, VisitTurn& turn, const Gpt2Tokens& tokens);
  int64_t graph_peak_bytes(int visit) const { return kind_of(visit).graph_peak_bytes(); }
  void forget_graphs();

 private:
  Gpt2Visit& kind_of(int visit) const {
    return *kinds_[static_cast<size_t>(layout_.roles[static_cast<size_t>(visit)].kind)];
  }

  Gpt2Layout layout_;
  std::array<std::unique_ptr<Gpt2Visit>, kGpt2Kinds> kinds_;
};

// What tile `tile` of `tiles` has of `count` rows, columns or heads. The first tiles are the larger ones.
struct TileRange {
  int64_t first = 0, end = 0;
  int64_t size() const { return end - first; }
};
TileRange tile_range(int64_t count, int64_t tiles, int64_t tile);
// The same with the larger ones from the second tile on.
TileRange inner_tile_range(int64_t count, int64_t tiles, int64_t tile);

// Elements of what the head makes that exist at once: as many as stay in a CPU's caches, or as keep a GPU busy.
struct HeadGrain {
  int64_t loss_tile = 0;  // logits; also the default of loss_tile_tokens
  int64_t softmax = 0;    // of them, those whose softmax is taken at once
  int64_t gradient = 0;   // of its weight
};
HeadGrain head_grain(DeviceKind device);
// A micro-batch at the most.
int64_t default_loss_tile_tokens(const HeadGrain& grain, int64_t vocab_size, int64_t tokens);
int64_t softmax_rows(const HeadGrain& grain, int64_t vocab_size);
int64_t head_gradient_rows(const HeadGrain& grain, int64_t width);
// Columns of the right operand that a product of narrow matrices widens at once (gpt2_module.h), from its rows and the
// left one's.
int64_t product_columns(int64_t left_rows, int64_t right_rows);

}  // namespace sluice
