// Attention in more tiles than it has heads: its two products in tiles of their own, and between them what mixes
// tokens, which has no weights. What the first products give and what the mixing gives are boundary tensors, one for
// each tile.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <utility>
#include <vector>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/gpt2_half.h"

namespace sluice {
namespace {

using torch::autograd::AutoGradMode;
using torch::autograd::variable_list;

// Rows of a visit's inputs, outputs or their gradients, whatever their width.
at::Tensor rows_of(const TensorView& view, const Gpt2Tokens& tokens, int64_t columns) {
  return tensor_of(view, {tokens.count(), columns});
}

// Some features of a head's queries, keys and values, side by side: of norm(x) W + b.
class InputTile final : public Gpt2Visit {
 public:
  explicit InputTile(const Gpt2Config& config) : width_(config.n_embd), epsilon_(config.layer_norm_epsilon) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int /*tile*/) override {
    const AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    const at::Tensor x = rows_of(turn.inputs()[0], tokens, width_);
    const int64_t columns = module_.bias.size(0);
    if (turn.pass() == Pass::kBackward) {
      backward(turn, x, rows_of(turn.output_gradients()[0], tokens, columns));
    } else {
      rows_of(turn.outputs()[0], tokens, columns).copy_(values(x));
    }
  }

 private:
  struct Module final : BoundModule {
    at::Tensor norm_weight = add_parameter("norm_weight"), norm_bias = add_parameter("norm_bias"),
               weight = add_parameter("weight"), bias = add_parameter("bias");
  };

  at::Tensor values(const at::Tensor& x) const {
    return affine(at::layer_norm(x, {width_}, module_.norm_weight, module_.norm_bias, epsilon_), module_.weight,
                  module_.bias);
  }

  void backward(VisitTurn& turn, const at::Tensor& x, const at::Tensor& gradient) {
    const at::Tensor leaf = x.detach().requires_grad_(true);
    variable_list gradients;
    {
      const AutoGradMode graph(true);
      gradients = torch::autograd::grad(
          {values(leaf)}, {leaf, module_.norm_weight, module_.norm_bias, module_.weight, module_.bias}, {gradient});
    }
    for (int weight = 0; weight < 4; ++weight) {
      contribute(turn, weight, std::exchange(gradients[static_cast<size_t>(weight) + 1], {}));
    }
    tensor_of(turn.input_gradients()[0], x.sizes()).copy_(gradients[0]);
  }

  int64_t width_;
  double epsilon_;
  Module module_;
};

// Attention itself, of one head: takes the features of its first product, gives those of its result.
class Mixing final : public Gpt2Visit {
 public:
  explicit Mixing(const Gpt2Config& config) : shape_(attention_shape(config)) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int /*tile*/) override {
    const AutoGradMode no_graph(false);
    const at::Tensor products = joined(turn.inputs(), tokens, kProducts).flatten(1);
    if (turn.pass() != Pass::kBackward) {
      return divide(mixed_tokens(products, tokens, shape_).unsqueeze(1), turn.outputs(), tokens);
    }
    const at::Tensor gradient = joined(turn.output_gradients(), tokens, 1).flatten(1);
    const at::Tensor leaf = products.requires_grad_(true);
    variable_list gradients;
    {
      const AutoGradMode graph(true);
      gradients = torch::autograd::grad({mixed_tokens(leaf, tokens, shape_)}, {leaf}, {gradient});
    }
    divide(gradients[0].view({tokens.count(), kProducts, -1}), turn.input_gradients(), tokens);
  }

 private:
  static constexpr int64_t kProducts = 3;  // queries, keys, values

  // Tiles of [tokens, groups, features], and the way back.
  at::Tensor joined(std::span<const TensorView> views, const Gpt2Tokens& tokens, int64_t groups) const {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < views.size(); ++i) {
      parts.push_back(tensor_of(views[i], {tokens.count(), groups, features_of(views, i).size()}));
    }
    return at::cat(parts, 2);
  }
  void divide(const at::Tensor& whole, std::span<const TensorView> views, const Gpt2Tokens& tokens) const {
    for (size_t i = 0; i < views.size(); ++i) {
      const TileRange range = features_of(views, i);
      tensor_of(views[i], {tokens.count(), whole.size(1), range.size()})
          .copy_(whole.narrow(2, range.first, range.size()));
    }
  }
  TileRange features_of(std::span<const TensorView> views, size_t tile) const {
    return inner_tile_range(shape_.head_width, std::ssize(views), static_cast<int64_t>(tile));
  }

  AttentionShape shape_;
};

// Some rows of the projection. The first begins the sum with what there is once: x, and the bias.
class OutputTile final : public Gpt2Visit {
 public:
  explicit OutputTile(const Gpt2Config& config) : width_(config.n_embd) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const AutoGradMode no_graph(false);
    const bool first = tile == 0;
    Module& module = first ? first_ : other_;
    SLUICE_CHECK(turn.weights().size() == (first ? 2 : 1), "a tile's weights");
    const Binding bound(module, turn.weights());
    const at::Tensor mixed = rows_of(turn.inputs()[0], tokens, module.weight.size(0));
    if (turn.pass() == Pass::kBackward) return backward(turn, tokens, mixed, module);
    at::Tensor sum = rows_of(turn.outputs()[0], tokens, width_);
    if (first) {
      at::add_out(sum, rows_of(turn.inputs()[1], tokens, width_), affine(mixed, module.weight, module.bias));
    } else {
      sum.add_(product(mixed, module.weight));
    }
  }

 private:
  enum class Bias : uint8_t { kNone, kOwn };
  struct Module final : BoundModule {
    explicit Module(Bias own) {
      weight = add_parameter("weight");
      if (own == Bias::kOwn) bias = add_parameter("bias");
    }
    at::Tensor weight, bias;
  };

  // `mixed` may lie where its gradient goes.
  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, const at::Tensor& mixed, const Module& module) {
    const bool first = &module == &first_;
    const at::Tensor gradient = rows_of(turn.output_gradients()[0], tokens, width_);
    contribute(turn, 0, product(mixed.t(), gradient));
    if (first) contribute(turn, 1, at::sum(gradient, 0));
    tensor_of(turn.input_gradients()[0], mixed.sizes()).copy_(product(gradient, module.weight.detach().t()));
    if (first) rows_of(turn.input_gradients()[1], tokens, width_).copy_(gradient);
  }

  int64_t width_;
  Module first_{Bias::kOwn}, other_{Bias::kNone};
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_attention_input(const Gpt2Config& config) {
  return std::make_unique<InputTile>(config);
}
std::unique_ptr<Gpt2Visit> make_gpt2_attention_mixing(const Gpt2Config& config) {
  return std::make_unique<Mixing>(config);
}
std::unique_ptr<Gpt2Visit> make_gpt2_attention_output(const Gpt2Config& config) {
  return std::make_unique<OutputTile>(config);
}

}  // namespace sluice
