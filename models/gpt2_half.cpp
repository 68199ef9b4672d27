#include "models/gpt2_half.h"

#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <utility>
#include <vector>

#include "models/causal_attention.h"

namespace sluice {

NormedProduct::NormedProduct(double epsilon)
    : norm_weight(add_parameter("norm_weight")),
      norm_bias(add_parameter("norm_bias")),
      inner_weight(add_parameter("inner_weight")),
      inner_bias(add_parameter("inner_bias")),
      epsilon_(epsilon) {}

at::Tensor NormedProduct::normed_affine(const at::Tensor& x) const {
  return affine(at::layer_norm(x, x.sizes().slice(1), norm_weight, norm_bias, epsilon_), inner_weight, inner_bias);
}

std::vector<TurnWeight> NormedProduct::inner_weights(std::span<const int> places) const {
  return {{places[kNormWeight], norm_weight},
          {places[kNormBias], norm_bias},
          {places[kInnerWeight], inner_weight},
          {places[kInnerBias], inner_bias}};
}

void Projection::begin(at::Tensor& sum, const at::Tensor& x, const at::Tensor& f) const {
  const at::Tensor projected = affine(f, weight, bias);
  at::add_out(sum, x, projected);
}
void Projection::add(at::Tensor& sum, const at::Tensor& f) const { sum.add_(product(f, weight)); }

Half::Half(double epsilon)
    : NormedProduct(epsilon), projection{add_parameter("projection_weight"), add_parameter("projection_bias")} {}

namespace {

// Of as many heads as the inner weight has columns for.
class Attention final : public Half {
 public:
  explicit Attention(const Gpt2Config& config) : Half(config.layer_norm_epsilon), shape_(attention_shape(config)) {}

  at::Tensor inner(const at::Tensor& x, const Gpt2Tokens& tokens) const override {
    return mixed_tokens(normed_affine(x), tokens, shape_);
  }

 private:
  AttentionShape shape_;
};

class Mlp final : public Half {
 public:
  using Half::Half;
  at::Tensor inner(const at::Tensor& x, const Gpt2Tokens&) const override { return normed_affine(x); }
  at::Tensor activate(const at::Tensor& before) const override { return at::gelu(before, "tanh"); }
  void activate_backward(at::Tensor& gradient, const at::Tensor& before) const override {
    at::gelu_backward_out(gradient, gradient, before, "tanh");
  }
};

std::array<WeightView, 6> views_of(const VisitTurn& turn, const HalfWeights& weights) {
  std::array<WeightView, 6> views;
  for (size_t i = 0; i < views.size(); ++i) views[i] = turn.weights()[static_cast<size_t>(weights[i])];
  return views;
}

}  // namespace

AttentionShape attention_shape(const Gpt2Config& config) {
  const int64_t width = config.n_embd / config.n_head;
  return {.head_width = width, .scale = config.scale_attn_weights ? 1 / std::sqrt(static_cast<double>(width)) : 1.0};
}

at::Tensor mixed_tokens(const at::Tensor& products, const Gpt2Tokens& tokens, const AttentionShape& shape) {
  const std::vector<at::Tensor> parts =
      products.view({tokens.batch, tokens.sequence, 3, -1, shape.head_width}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor mixed = causal_attention(parts[0], parts[1], parts[2], shape.scale);
  return mixed.transpose(1, 2).reshape({tokens.count(), -1});
}

std::unique_ptr<Half> make_attention(const Gpt2Config& config) { return std::make_unique<Attention>(config); }
std::unique_ptr<Half> make_mlp(const Gpt2Config& config) { return std::make_unique<Mlp>(config.layer_norm_epsilon); }

HalfBinding::HalfBinding(Half& half, const VisitTurn& turn, const HalfWeights& weights)
    : views_(views_of(turn, weights)), binding_(half, views_) {}

WithGraph inner_with_graph(const Half& half, const at::Tensor& x, const Gpt2Tokens& tokens) {
  return with_graph(x, [&](const at::Tensor& leaf) { return half.inner(leaf, tokens); });
}

at::Tensor differentiate(const HalfTurn& of, WithGraph made, const at::Tensor& output_gradient) {
  const auto& [half, turn, weights] = of;
  contribute(turn, weights[kProjectionWeight], product(half.activate(made.value.detach()).t(), output_gradient));
  at::Tensor gradient = product(output_gradient, half.projection.weight.detach().t());
  half.activate_backward(gradient, made.value.detach());
  return differentiate(turn, std::move(made), gradient, half.inner_weights(weights));
}

void contribute_projection_bias(const HalfTurn& of, const at::Tensor& output_gradient) {
  contribute(of.turn, of.weights[kProjectionBias], at::sum(output_gradient, 0));
}

}  // namespace sluice
