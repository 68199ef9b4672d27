// A block: x + P(f(x)) twice, f being attention, then the MLP.
//
// Backward works half by half. The projection P and the MLP's GELU need no graph: their gradients are written here,
// each tensor dropped after its last use, and autograd recomputes and differentiates what is below them. So the block's
// output is never computed again, and the MLP's intermediates are gone before attention's gradients are made.
#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <cmath>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/causal_attention.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

using torch::autograd::variable_list;

// One half. Parameters in the order of gpt2_block_parameters: norm weight and bias, inner weight and bias, projection
// weight and bias.
class Half : public BoundModule {
 public:
  static constexpr int kParameters = 6;

  explicit Half(double epsilon)
      : norm_weight(add_parameter("norm_weight")),
        norm_bias(add_parameter("norm_bias")),
        inner_weight(add_parameter("inner_weight")),
        inner_bias(add_parameter("inner_bias")),
        projection_weight(add_parameter("projection_weight")),
        projection_bias(add_parameter("projection_bias")),
        epsilon_(epsilon) {}

  // f is activate(inner(x)), [tokens, in of P]; inner alone is differentiated by autograd.
  virtual at::Tensor inner(const at::Tensor& x, const Gpt2Tokens& tokens) = 0;
  virtual at::Tensor activate(const at::Tensor& before) const { return before; }
  // Turns the gradient of f into that of inner(x), in place.
  virtual void activate_backward(at::Tensor& gradient, const at::Tensor& before) const { (void)gradient, (void)before; }

  // Into `to`, which may be x: x + P(f).
  void finish(const at::Tensor& x, const at::Tensor& f, at::Tensor& to) const {
    const at::Tensor projected = affine(f, projection_weight, projection_bias);
    at::add_out(to, x, projected);
  }

  at::Tensor norm_weight, norm_bias, inner_weight, inner_bias, projection_weight, projection_bias;

 protected:
  at::Tensor normed_affine(const at::Tensor& x) const {
    return affine(at::layer_norm(x, x.sizes().slice(1), norm_weight, norm_bias, epsilon_), inner_weight, inner_bias);
  }

 private:
  double epsilon_;
};

class Attention final : public Half {
 public:
  explicit Attention(const Gpt2Config& config)
      : Half(config.layer_norm_epsilon),
        heads_(config.n_head),
        head_width_(config.n_embd / config.n_head),
        scale_(config.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(head_width_)) : 1.0) {}

  at::Tensor inner(const at::Tensor& x, const Gpt2Tokens& tokens) override {
    const std::vector<at::Tensor> parts = normed_affine(x)
                                              .view({tokens.batch, tokens.sequence, 3, heads_, head_width_})
                                              .permute({2, 0, 3, 1, 4})
                                              .unbind(0);
    const at::Tensor mixed = causal_attention(parts[0], parts[1], parts[2], scale_);
    return mixed.transpose(1, 2).reshape({tokens.count(), heads_ * head_width_});
  }

 private:
  int64_t heads_, head_width_;
  double scale_;
};

class Mlp final : public Half {
 public:
  using Half::Half;
  at::Tensor inner(const at::Tensor& x, const Gpt2Tokens&) override { return normed_affine(x); }
  at::Tensor activate(const at::Tensor& before) const override { return at::gelu(before, "tanh"); }
  void activate_backward(at::Tensor& gradient, const at::Tensor& before) const override {
    at::gelu_backward_out(gradient, gradient, before, "tanh");
  }
};

// inner(x) with the graph that leads to it.
struct Recomputed {
  at::Tensor leaf, inner;
};

Recomputed recompute(Half& half, const at::Tensor& x, const Gpt2Tokens& tokens) {
  const torch::autograd::AutoGradMode graph(true);
  Recomputed made{.leaf = x.detach().requires_grad_(true), .inner = {}};
  made.inner = half.inner(made.leaf, tokens);
  return made;
}

// Contributes the half's gradients, its first parameter being weight `first` of the turn, and returns the gradient of x
// without the residual's own part. `made` is spent.
at::Tensor differentiate(Half& half, Recomputed made, const at::Tensor& output_gradient, VisitTurn& turn, int first) {
  contribute(turn, first + 4, product(half.activate(made.inner.detach()).t(), output_gradient));
  contribute(turn, first + 5, at::sum(output_gradient, 0));
  at::Tensor gradient = product(output_gradient, half.projection_weight.detach().t());
  half.activate_backward(gradient, made.inner.detach());
  const variable_list wanted = {made.leaf, half.norm_weight, half.norm_bias, half.inner_weight, half.inner_bias};
  variable_list gradients = torch::autograd::grad({made.inner}, wanted, {gradient});
  for (int i = 1; i < static_cast<int>(gradients.size()); ++i) {
    contribute(turn, first + i - 1, std::exchange(gradients[static_cast<size_t>(i)], {}));
  }
  return gradients[0];
}

class Block final : public Gpt2Visit {
 public:
  explicit Block(const Gpt2Config& config)
      : width_(config.n_embd), attention_(config), mlp_(config.layer_norm_epsilon) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens) override {
    SLUICE_CHECK(turn.weights().size() == 2 * Half::kParameters, "a block's weights");
    const torch::autograd::AutoGradMode no_graph(false);
    const Binding attention(attention_, turn.weights().first(Half::kParameters));
    const Binding mlp(mlp_, turn.weights().last(Half::kParameters));
    turn.pass() == Pass::kBackward ? backward(turn, tokens) : forward(turn, tokens);
  }

 private:
  void forward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    at::Tensor y = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    attention_.finish(x, attention_.inner(x, tokens), y);
    // The attention's sum lies where the block's output will: the last operation reads it, element by element.
    mlp_.finish(y, mlp_.activate(mlp_.inner(y, tokens)), y);
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    const at::Tensor y_gradient = tensor_of(turn.output_gradients()[0], {tokens.count(), width_});
    at::Tensor x_gradient = tensor_of(turn.input_gradients()[0], {tokens.count(), width_});
    Recomputed attention = recompute(attention_, x, tokens);
    at::Tensor middle_gradient;
    {
      at::Tensor middle = at::empty_like(x);
      attention_.finish(x, attention.inner.detach(), middle);
      middle_gradient = differentiate(mlp_, recompute(mlp_, middle, tokens), y_gradient, turn, Half::kParameters);
    }
    middle_gradient.add_(y_gradient);
    const at::Tensor inner_gradient = differentiate(attention_, std::move(attention), middle_gradient, turn, 0);
    at::add_out(x_gradient, middle_gradient, inner_gradient);
  }

  int64_t width_;
  Attention attention_;
  Mlp mlp_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_block(const Gpt2Config& config) { return std::make_unique<Block>(config); }

}  // namespace sluice
