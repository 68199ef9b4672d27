// The head: final LayerNorm, logits and cross-entropy, tile of tokens after tile of tokens, so that logits of a whole
// batch never exist. The softmax and its gradient are written out (fp32, few rows at a time, over the tile's logits);
// the head's weight gradient is made in slices of rows and added to the open gradient, so that it never exists whole
// outside of it.
#include <ATen/ops/amax.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

enum WeightIndex : int { kNormWeight, kNormBias, kWeight };

class HeadModule final : public BoundModule {
 public:
  explicit HeadModule(double epsilon)
      : norm_weight(add_parameter("norm_weight")),
        norm_bias(add_parameter("norm_bias")),
        weight(add_parameter("weight")),
        epsilon_(epsilon) {}
  at::Tensor normed(const at::Tensor& x) const {
    return at::layer_norm(x, x.sizes().slice(1), norm_weight, norm_bias, epsilon_);
  }
  at::Tensor norm_weight, norm_bias, weight;

 private:
  double epsilon_;
};

enum class Want : uint8_t { kLoss, kLossAndGradient };

// The sum of losses over rows of `logits` whose target counts. With kLossAndGradient the rows become the gradient of
// sum * factor.
double cross_entropy(at::Tensor& logits, std::span<const int64_t> targets, double factor, Want want) {
  at::Tensor exponential = logits.to(c10::ScalarType::Float, false, true);
  exponential.sub_(at::amax(exponential, 1, true));
  const int64_t vocabulary = exponential.size(1);
  std::vector<float> at_target(targets.size(), 0.0f);
  float* const values = exponential.mutable_data_ptr<float>();
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != kIgnoredTarget) at_target[i] = values[static_cast<int64_t>(i) * vocabulary + targets[i]];
  }
  exponential.exp_();
  const at::Tensor sums = at::sum(exponential, 1, true);
  const float* const sum = sums.const_data_ptr<float>();
  double loss = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != kIgnoredTarget) loss += std::log(sum[i]) - at_target[i];
  }
  if (want == Want::kLoss) return loss;
  exponential.div_(sums);
  for (size_t i = 0; i < targets.size(); ++i) {
    float* const row = values + static_cast<int64_t>(i) * vocabulary;
    if (targets[i] == kIgnoredTarget) {
      std::fill(row, row + vocabulary, 0.0f);
    } else {
      row[targets[i]] -= 1.0f;
    }
  }
  exponential.mul_(factor);
  logits.copy_(exponential);
  return loss;
}

class Head final : public Gpt2Visit {
 public:
  Head(const Gpt2Config& config, int64_t tile_tokens)
      : width_(config.n_embd),
        vocabulary_(config.vocab_size),
        tile_tokens_(tile_tokens),
        module_(config.layer_norm_epsilon) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens) override {
    if (turn.pass() == Pass::kForward) return;  // a sink: its backward is forward and backward in one
    const torch::autograd::AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    if (!tokens.logits.empty()) {
      next_token(turn, tokens);
      return;
    }
    const int64_t counted = static_cast<int64_t>(tokens.targets.size()) -
                            std::count(tokens.targets.begin(), tokens.targets.end(), kIgnoredTarget);
    double loss = 0;
    for (int64_t first = 0; first < tokens.count(); first += tile_tokens_) {
      const int64_t count = std::min(tile_tokens_, tokens.count() - first);
      const auto targets = tokens.targets.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
      loss += turn.pass() == Pass::kBackward ? train_tile(turn, first, targets, counted)
                                             : loss_of_tile(turn, first, targets);
    }
    turn.report_loss(counted > 0 ? loss / static_cast<double>(counted) : 0.0);
  }

 private:
  at::Tensor tile_of(const TensorView& view, int64_t first, int64_t count) const {
    return tensor_of({.address = view.address + first * width_ * bytes_of(view.dtype),
                      .elements = view.elements - first * width_,
                      .dtype = view.dtype},
                     {count, width_});
  }

  at::Tensor logits_of(const at::Tensor& normed) const { return product(normed, module_.weight.t()); }

  double softmax(at::Tensor& logits, std::span<const int64_t> targets, double factor, Want want) const {
    const int64_t step = softmax_rows(vocabulary_), rows = logits.size(0);
    double loss = 0;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      at::Tensor part = logits.narrow(0, row, count);
      loss += cross_entropy(part, targets.subspan(static_cast<size_t>(row), static_cast<size_t>(count)), factor, want);
    }
    return loss;
  }

  double loss_of_tile(VisitTurn& turn, int64_t first, std::span<const int64_t> targets) {
    at::Tensor logits =
        logits_of(module_.normed(tile_of(turn.inputs()[0], first, static_cast<int64_t>(targets.size()))));
    return softmax(logits, targets, 1, Want::kLoss);
  }

  double train_tile(VisitTurn& turn, int64_t first, std::span<const int64_t> targets, int64_t counted) {
    const int64_t count = static_cast<int64_t>(targets.size());
    at::Tensor to = tile_of(turn.input_gradients()[0], first, count);
    if (std::all_of(targets.begin(), targets.end(), [](int64_t target) { return target == kIgnoredTarget; })) {
      to.zero_();
      return 0;
    }
    at::Tensor leaf, normed;
    {
      const torch::autograd::AutoGradMode graph(true);
      leaf = tile_of(turn.inputs()[0], first, count).requires_grad_(true);
      normed = module_.normed(leaf);
    }
    at::Tensor logits = logits_of(normed.detach());
    const double factor = turn.loss_scale() / static_cast<double>(counted);
    const double loss = softmax(logits, targets, factor, Want::kLossAndGradient);
    contribute_weight_gradient(turn, logits, normed.detach());
    const at::Tensor normed_gradient = product(logits, module_.weight.detach());
    logits.reset();
    auto gradients = torch::autograd::grad({normed}, {leaf, module_.norm_weight, module_.norm_bias}, {normed_gradient});
    contribute(turn, kNormWeight, gradients[1]);
    contribute(turn, kNormBias, gradients[2]);
    to.copy_(gradients[0]);
    return loss;
  }

  void contribute_weight_gradient(VisitTurn& turn, const at::Tensor& logits_gradient, const at::Tensor& normed) const {
    const int64_t step = head_gradient_rows(width_);
    for (int64_t row = 0; row < vocabulary_; row += step) {
      const int64_t rows = std::min(step, vocabulary_ - row);
      const at::Tensor part = product(logits_gradient.narrow(1, row, rows).t(), normed).contiguous();
      turn.contribute_part(kWeight, row * width_, bytes_of(part), part.numel(), dtype_of(part));
    }
  }

  void next_token(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor logits = logits_of(module_.normed(tile_of(turn.inputs()[0], tokens.count() - 1, 1)));
    SLUICE_CHECK(static_cast<int64_t>(tokens.logits.size()) == vocabulary_,
                 "one logit for each entry of the vocabulary");
    at::from_blob(tokens.logits.data(), {1, vocabulary_}, at::TensorOptions().dtype(c10::ScalarType::Float))
        .copy_(logits);
  }

  int64_t width_, vocabulary_, tile_tokens_;
  HeadModule module_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_head(const Gpt2Config& config, int64_t tile_tokens) {
  return std::make_unique<Head>(config, tile_tokens);
}

}  // namespace sluice
