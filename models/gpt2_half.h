// Half of a block, or a tile of it: P(f(x)), f being attention or the MLP up to its activation. Includes LibTorch: for
// models' .cpp files only.
//
// The projection P and the MLP's GELU need no graph: their gradients are written out, each tensor dropped after its
// last use, and autograd recomputes and differentiates what is below them. A tile is some of attention's heads or of
// the MLP's hidden features, with the rows of P that read them: a half of its own but for the norm that it starts with.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {

// Where each of a half's parameters is among the weights of a turn: norm weight and bias, inner weight and bias,
// projection weight and bias.
enum HalfPart : int { kNormWeight, kNormBias, kInnerWeight, kInnerBias, kProjectionWeight, kProjectionBias };
using HalfWeights = std::array<int, 6>;

// norm(x) W + b, which a half begins with, of as many columns as its weights have.
class NormedProduct : public BoundModule {
 public:
  explicit NormedProduct(double epsilon);
  at::Tensor normed_affine(const at::Tensor& x) const;
  // Its parameters among the weights of a turn; `places`: by HalfPart, the first four.
  std::vector<TurnWeight> inner_weights(std::span<const int> places) const;

  at::Tensor norm_weight, norm_bias, inner_weight, inner_bias;

 private:
  double epsilon_;
};

// P, of which a layer's tiles are a sum: the first begins it with what there is once, x and the bias.
struct Projection {
  at::Tensor weight, bias;  // a tile that adds needs no bias

  // Into `sum`, which may be x: x + f W + b.
  void begin(at::Tensor& sum, const at::Tensor& x, const at::Tensor& f) const;
  // Adds f W.
  void add(at::Tensor& sum, const at::Tensor& f) const;
};

class Half : public NormedProduct {
 public:
  explicit Half(double epsilon);

  // f is activate(inner(x)), [tokens, in of P]; inner alone is differentiated by autograd.
  virtual at::Tensor inner(const at::Tensor& x, const Gpt2Tokens& tokens) const = 0;
  virtual at::Tensor activate(const at::Tensor& before) const { return before; }
  // Turns the gradient of f into that of inner(x), in place.
  virtual void activate_backward(at::Tensor& gradient, const at::Tensor& before) const { (void)gradient, (void)before; }

  Projection projection;
};

struct AttentionShape {
  int64_t head_width = 1;
  double scale = 1;
};
AttentionShape attention_shape(const Gpt2Config& config);
// Attention of as many heads as there are columns for: queries, keys and values side by side, [tokens, 3 x width], to
// [tokens, width]. Differentiable.
at::Tensor mixed_tokens(const at::Tensor& products, const Gpt2Tokens& tokens, const AttentionShape& shape);

std::unique_ptr<Half> make_attention(const Gpt2Config& config);
std::unique_ptr<Half> make_mlp(const Gpt2Config& config);

// Binds a half to weights of a turn for the length of a visit.
class HalfBinding {
 public:
  HalfBinding(Half& half, const VisitTurn& turn, const HalfWeights& weights);

 private:
  std::array<WeightView, 6> views_;
  Binding binding_;
};

// inner(x) with the graph that leads to it.
WithGraph inner_with_graph(const Half& half, const at::Tensor& x, const Gpt2Tokens& tokens);

// A half in a turn that it contributes to.
struct HalfTurn {
  const Half& half;
  VisitTurn& turn;
  const HalfWeights& weights;
};
// Contributes the gradients of the half's parameters but for the projection's bias, and returns that of x. `made` is
// spent.
at::Tensor differentiate(const HalfTurn& of, WithGraph made, const at::Tensor& output_gradient);
// ... of the projection's bias, which tiles have in common.
void contribute_projection_bias(const HalfTurn& of, const at::Tensor& output_gradient);

}  // namespace sluice
