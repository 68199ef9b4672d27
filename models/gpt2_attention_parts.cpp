// Attention in more tiles than it has heads: its two products in tiles of their own, and between them what mixes
// tokens, which has no weights. What the first products give and what the mixing gives are boundary tensors, one for
// each tile.
#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "libtorch/tensors.h"
#include "models/gpt2_half.h"

namespace sluice {
namespace {

using torch::autograd::AutoGradMode;

// Some features of a head's queries, keys and values, side by side: of norm(x) W + b.
class InputTile final : public Gpt2Visit {
 public:
  explicit InputTile(const Gpt2Config& config) : width_(config.n_embd), module_(config.layer_norm_epsilon) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int /*tile*/) override {
    const AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    const int64_t columns = module_.inner_bias.size(0);
    if (turn.pass() == Pass::kBackward) {
      backward(turn, x, tensor_of(turn.output_gradients()[0], {tokens.count(), columns}));
    } else {
      tensor_of(turn.outputs()[0], {tokens.count(), columns}).copy_(module_.normed_affine(x));
    }
  }

 private:
  static constexpr std::array kPlaces = {0, 1, 2, 3};  // the norm's partition comes first

  void backward(VisitTurn& turn, const at::Tensor& x, const at::Tensor& gradient) {
    WithGraph made = with_graph(x, [this](const at::Tensor& leaf) { return module_.normed_affine(leaf); });
    const at::Tensor own = differentiate(turn, std::move(made), gradient, module_.inner_weights(kPlaces));
    tensor_of(turn.input_gradients()[0], x.sizes()).copy_(own);
  }

  int64_t width_;
  NormedProduct module_;
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
    WithGraph made = with_graph(products, [&](const at::Tensor& leaf) { return mixed_tokens(leaf, tokens, shape_); });
    const at::Tensor own = differentiate(turn, std::move(made), gradient, {});
    divide(own.view({tokens.count(), kProducts, -1}), turn.input_gradients(), tokens);
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

// Some rows of the projection. The first tile has its bias, and takes x.
class OutputTile final : public Gpt2Visit {
 public:
  explicit OutputTile(const Gpt2Config& config) : width_(config.n_embd) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const AutoGradMode no_graph(false);
    Module& module = tile == 0 ? first_ : other_;
    const Binding bound(module, turn.weights());
    const Projection& projection = module.projection;
    const at::Tensor mixed = tensor_of(turn.inputs()[0], {tokens.count(), projection.weight.size(0)});
    if (turn.pass() == Pass::kBackward) return backward(turn, mixed, projection);
    at::Tensor sum = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    tile == 0 ? projection.begin(sum, tensor_of(turn.inputs()[1], sum.sizes()), mixed) : projection.add(sum, mixed);
  }

 private:
  struct Module : BoundModule {
    Projection projection{add_parameter("weight"), {}};
  };
  struct First final : Module {
    First() { projection.bias = add_parameter("bias"); }
  };

  // `mixed` may lie where its gradient goes.
  void backward(VisitTurn& turn, const at::Tensor& mixed, const Projection& projection) {
    const bool first = projection.bias.defined();
    const at::Tensor gradient = tensor_of(turn.output_gradients()[0], {mixed.size(0), width_});
    contribute(turn, 0, product(mixed.t(), gradient));
    if (first) contribute(turn, 1, at::sum(gradient, 0));
    tensor_of(turn.input_gradients()[0], mixed.sizes()).copy_(product(gradient, projection.weight.detach().t()));
    if (first) tensor_of(turn.input_gradients()[1], gradient.sizes()).copy_(gradient);
  }

  int64_t width_;
  First first_;
  Module other_;
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
