// Some rows of the embedding's two matrices: adds what they have for tokens and positions of their own to what it
// finds, and nothing for others. Every element is a sum of two, so the order of tiles changes none. Where there are
// fewer positions than tiles, the last tiles have none, and no weights for them.
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <vector>

#include "libtorch/tensors.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

class EmbeddingTile final : public Gpt2Visit {
 public:
  explicit EmbeddingTile(const Gpt2Config& config)
      : width_(config.n_embd),
        tiles_(config.tiling.embedding),
        position_tiles_(config.position_tiles()),
        vocabulary_(config.vocab_size),
        positions_(config.n_positions) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const torch::autograd::AutoGradMode no_graph(false);
    turn.pass() == Pass::kBackward ? backward(turn, tokens, tile) : forward(turn, tokens, tile);
  }

 private:
  // The tile's positions that a sequence has.
  TileRange places(const Gpt2Tokens& tokens, int tile) const {
    if (tile >= position_tiles_) return {};
    const TileRange range = tile_range(positions_, position_tiles_, tile);
    return {range.first, std::max(range.first, std::min(range.end, tokens.sequence))};
  }

  // The tokens whose words are of the tile, and the tile's rows for them.
  struct Words {
    std::vector<int64_t> tokens, rows;
  };
  Words words_of(const Gpt2Tokens& tokens, int tile) const {
    const TileRange range = tile_range(vocabulary_, tiles_, tile);
    Words words;
    for (int64_t i = 0; i < tokens.count(); ++i) {
      const int64_t id = tokens.ids[static_cast<size_t>(i)];
      if (id < range.first || id >= range.end) continue;
      words.tokens.push_back(i);
      words.rows.push_back(id - range.first);
    }
    return words;
  }

  void forward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    at::Tensor sum = tensor_of(turn.outputs()[0], {tokens.batch, tokens.sequence, width_});
    if (tile == 0) sum.zero_();
    if (const Words words = words_of(tokens, tile); !words.rows.empty()) {
      const at::Tensor values = at::embedding(tensor_of(turn.weights()[kWte]), tensor_from_host(words.rows));
      sum.view({tokens.count(), width_}).index_add_(0, tensor_from_host(words.tokens), values);
    }
    if (const TileRange here = places(tokens, tile); here.size() > 0) {
      sum.narrow(1, here.first, here.size()).add_(tensor_of(turn.weights()[kWpe]).narrow(0, 0, here.size()));
    }
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    const TensorView& given = turn.output_gradients()[0];
    if (const Words words = words_of(tokens, tile); !words.rows.empty()) {
      const at::Tensor gradient = tensor_of(given, {tokens.count(), width_});
      add_rows(turn, kWte, tensor_from_host(words.rows), gradient.index_select(0, tensor_from_host(words.tokens)));
    }
    const TileRange here = places(tokens, tile);
    const int64_t row_bytes = width_ * bytes_of(given.dtype);
    for (int64_t i = 0; i < tokens.batch && here.size() > 0; ++i) {
      const std::byte* const rows = given.address + (i * tokens.sequence + here.first) * row_bytes;
      turn.contribute_part(kWpe, 0, {rows, given.dtype, here.size() * width_});
    }
  }

  int64_t width_, tiles_, position_tiles_, vocabulary_, positions_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_embedding_tile(const Gpt2Config& config) {
  return std::make_unique<EmbeddingTile>(config);
}

}  // namespace sluice
