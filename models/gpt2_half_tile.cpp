// A tile of half a block. The first of its layer begins the sum with what there is once: x, and the projection's bias;
// the others add to what they find. Each normalises x for itself: x and the layer's sum are all that is kept.
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <utility>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/gpt2_half.h"

namespace sluice {
namespace {

// The partition that the layer's tiles share comes first: norm weight and bias, projection bias.
constexpr HalfWeights kTile = {0, 1, 3, 4, 5, 2};

class HalfTile final : public Gpt2Visit {
 public:
  HalfTile(std::unique_ptr<Half> half, int64_t width) : half_(std::move(half)), width_(width) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    SLUICE_CHECK(turn.weights().size() == kTile.size(), "a tile's weights");
    const torch::autograd::AutoGradMode no_graph(false);
    const HalfBinding bound(*half_, turn, kTile);
    turn.pass() == Pass::kBackward ? backward(turn, tokens, tile) : forward(turn, tokens, tile);
  }

 private:
  void forward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    at::Tensor sum = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    const at::Tensor f = half_->activate(half_->inner(x, tokens));
    tile == 0 ? half_->projection.begin(sum, x, f) : half_->projection.add(sum, f);
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    const at::Tensor sum_gradient = tensor_of(turn.output_gradients()[0], {tokens.count(), width_});
    at::Tensor x_gradient = tensor_of(turn.input_gradients()[0], {tokens.count(), width_});
    const HalfTurn half{*half_, turn, kTile};
    if (tile == 0) contribute_projection_bias(half, sum_gradient);
    const at::Tensor own = differentiate(half, inner_with_graph(*half_, x, tokens), sum_gradient);
    if (tile == 0) {
      at::add_out(x_gradient, own, sum_gradient);
    } else {
      x_gradient.copy_(own);
    }
  }

  std::unique_ptr<Half> half_;
  int64_t width_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_attention_tile(const Gpt2Config& config) {
  return std::make_unique<HalfTile>(make_attention(config), config.n_embd);
}
std::unique_ptr<Gpt2Visit> make_gpt2_mlp_tile(const Gpt2Config& config) {
  return std::make_unique<HalfTile>(make_mlp(config), config.n_embd);
}

}  // namespace sluice
