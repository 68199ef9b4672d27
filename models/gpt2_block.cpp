// A block: x + P(f(x)) twice, f being attention, then the MLP.
//
// Backward works half by half, so the block's output is never computed again, and the MLP's intermediates are gone
// before attention's gradients are made.
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <utility>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/gpt2_half.h"

namespace sluice {
namespace {

// In the order of the block's parameters.
constexpr HalfWeights kAttention = {0, 1, 2, 3, 4, 5}, kMlp = {6, 7, 8, 9, 10, 11};

class Block final : public Gpt2Visit {
 public:
  explicit Block(const Gpt2Config& config)
      : width_(config.n_embd), attention_(make_attention(config)), mlp_(make_mlp(config)) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    SLUICE_CHECK(turn.weights().size() == kAttention.size() + kMlp.size(), "a block's weights");
    const torch::autograd::AutoGradMode no_graph(false);
    const HalfBinding attention(*attention_, turn, kAttention), mlp(*mlp_, turn, kMlp);
    turn.pass() == Pass::kBackward ? backward(turn, tokens) : forward(turn, tokens);
  }

 private:
  // Into `to`, which may be x: x + P(f).
  static void finish(const Half& half, const at::Tensor& x, const at::Tensor& f, at::Tensor& to) {
    const at::Tensor projected = affine(f, half.projection_weight, half.projection_bias);
    at::add_out(to, x, projected);
  }

  static at::Tensor differentiate_whole(Half& half, Recomputed made, const at::Tensor& output_gradient, VisitTurn& turn,
                                        const HalfWeights& weights) {
    contribute_projection_bias(output_gradient, turn, weights);
    return differentiate(half, std::move(made), output_gradient, turn, weights);
  }

  void forward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    at::Tensor y = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    finish(*attention_, x, attention_->inner(x, tokens), y);
    // The attention's sum lies where the block's output will: the last operation reads it, element by element.
    finish(*mlp_, y, mlp_->activate(mlp_->inner(y, tokens)), y);
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    const at::Tensor y_gradient = tensor_of(turn.output_gradients()[0], {tokens.count(), width_});
    at::Tensor x_gradient = tensor_of(turn.input_gradients()[0], {tokens.count(), width_});
    Recomputed attention = recompute(*attention_, x, tokens);
    at::Tensor middle_gradient;
    {
      at::Tensor middle = at::empty_like(x);
      finish(*attention_, x, attention.inner.detach(), middle);
      middle_gradient = differentiate_whole(*mlp_, recompute(*mlp_, middle, tokens), y_gradient, turn, kMlp);
    }
    middle_gradient.add_(y_gradient);
    const at::Tensor inner_gradient =
        differentiate_whole(*attention_, std::move(attention), middle_gradient, turn, kAttention);
    at::add_out(x_gradient, middle_gradient, inner_gradient);
  }

  int64_t width_;
  std::unique_ptr<Half> attention_, mlp_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_block(const Gpt2Config& config) { return std::make_unique<Block>(config); }

}  // namespace sluice
