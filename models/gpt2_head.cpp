// The head: final LayerNorm, logits and cross-entropy, tile of tokens after tile of tokens, so that logits of a whole
// batch never exist. The softmax and its gradient are written out (fp32, few rows at a time, over the tile's logits).
#include "models/gpt2_head.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.h"

namespace sluice {
namespace {

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

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    if (turn.pass() == Pass::kForward) return;  // a sink: its backward is forward and backward in one
    const torch::autograd::AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    if (!tokens.logits.empty()) {
      SLUICE_CHECK(static_cast<int64_t>(tokens.logits.size()) == vocabulary_,
                   "one logit for each entry of the vocabulary");
      fill_logits(module_, turn, tokens, {0, vocabulary_});
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
    const TileRange tile{first, first + static_cast<int64_t>(targets.size())};
    at::Tensor logits = module_.logits_of(module_.normed(tokens_of(turn.inputs()[0], tile, width_)));
    return softmax(logits, targets, 1, Want::kLoss);
  }

  double train_tile(VisitTurn& turn, int64_t first, std::span<const int64_t> targets, int64_t counted) {
    const TileRange tile{first, first + static_cast<int64_t>(targets.size())};
    at::Tensor to = tokens_of(turn.input_gradients()[0], tile, width_);
    if (std::all_of(targets.begin(), targets.end(), [](int64_t target) { return target == kIgnoredTarget; })) {
      to.zero_();
      return 0;
    }
    NormedTokens made = normed_with_graph(module_, tokens_of(turn.inputs()[0], tile, width_));
    at::Tensor logits = module_.logits_of(made.normed.detach());
    const double factor = turn.loss_scale() / static_cast<double>(counted);
    const double loss = softmax(logits, targets, factor, Want::kLossAndGradient);
    differentiate_logits(module_, turn, std::move(made), std::move(logits), to);
    return loss;
  }

  int64_t width_, vocabulary_, tile_tokens_;
  HeadModule module_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_head(const Gpt2Config& config, int64_t tile_tokens) {
  return std::make_unique<Head>(config, tile_tokens);
}

}  // namespace sluice
