// Some rows of the embedding's two matrices: adds what they have for tokens and positions of their own to what it
// finds, and nothing for others. Every element is a sum of two, so the order of tiles changes none.
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <vector>

#include "libtorch/tensors.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

enum WeightIndex : int { kWte, kWpe };

class EmbeddingTile final : public Gpt2Visit {
 public:
  explicit EmbeddingTile(const Gpt2Config& config)
      : width_(config.n_embd),
        tiles_(config.tiling.embedding),
        vocabulary_(config.vocab_size),
        positions_(config.n_positions) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const torch::autograd::AutoGradMode no_graph(false);
    turn.pass() == Pass::kBackward ? backward(turn, tokens, tile) : forward(turn, tokens, tile);
  }

 private:
  // The tile's positions that a sequence has.
  TileRange places(const Gpt2Tokens& tokens, int tile) const {
    const TileRange range = tile_range(positions_, tiles_, tile);
    return {range.first, std::max(range.first, std::min(range.end, tokens.sequence))};
  }

  void forward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    at::Tensor sum = tensor_of(turn.outputs()[0], {tokens.batch, tokens.sequence, width_});
    if (tile == 0) sum.zero_();
    const TileRange words = tile_range(vocabulary_, tiles_, tile);
    std::vector<int64_t> tokens_here, rows;
    for (int64_t i = 0; i < tokens.count(); ++i) {
      const int64_t id = tokens.ids[static_cast<size_t>(i)];
      if (id < words.first || id >= words.end) continue;
      tokens_here.push_back(i);
      rows.push_back(id - words.first);
    }
    const auto indices = [](std::vector<int64_t>& list) {
      return at::from_blob(list.data(), {static_cast<int64_t>(list.size())},
                           at::TensorOptions().dtype(c10::ScalarType::Long));
    };
    if (!rows.empty()) {
      const at::Tensor values = at::embedding(tensor_of(turn.weights()[kWte]), indices(rows));
      sum.view({tokens.count(), width_}).index_add_(0, indices(tokens_here), values);
    }
    if (const TileRange here = places(tokens, tile); here.size() > 0) {
      sum.narrow(1, here.first, here.size()).add_(tensor_of(turn.weights()[kWpe]).narrow(0, 0, here.size()));
    }
  }

  // Rows add in the order of tokens, in fp32.
  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    const TensorView& gradient = turn.output_gradients()[0];
    const int64_t row_bytes = width_ * bytes_of(gradient.dtype);
    const TileRange words = tile_range(vocabulary_, tiles_, tile), here = places(tokens, tile);
    for (int64_t i = 0; i < tokens.count(); ++i) {
      const std::byte* row = gradient.address + i * row_bytes;
      const auto add_row = [&](WeightIndex weight, const TileRange& range, int64_t which) {
        if (which < range.first || which >= range.end) return;
        turn.contribute_part(weight, (which - range.first) * width_, row, width_, gradient.dtype);
      };
      add_row(kWte, words, tokens.ids[static_cast<size_t>(i)]);
      add_row(kWpe, here, i % tokens.sequence);
    }
  }

  int64_t width_, tiles_, vocabulary_, positions_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_embedding_tile(const Gpt2Config& config) {
  return std::make_unique<EmbeddingTile>(config);
}

}  // namespace sluice
