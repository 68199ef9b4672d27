// Some rows of the head, and the loss behind all of them.
//
// The softmax is over all rows, so it goes through the boundary tensor "statistics", fp32, in three planes of a value
// for each token. On the way forward every tile carries on
//   maximum | sum of exponentials below it | the target's logit
// and on the way back the loss hands its tiles, as that tensor's gradient,
//   log-sum-exp | weight of the token in the loss, times its scale | nothing
// from which each makes its logits' gradient, exp(logit - log-sum-exp) - [is the target] times the weight, alone.
#include <ATen/ops/amax.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/gpt2_head.h"

namespace sluice {
namespace {

// The statistics of each token.
struct Statistics {
  explicit Statistics(const TensorView& view)
      : maximum(reinterpret_cast<float*>(view.address)),
        sum(maximum + view.elements / 3),
        at_target(sum + view.elements / 3) {}
  float *maximum, *sum, *at_target;
};
struct StatisticsGradient {
  explicit StatisticsGradient(const TensorView& view)
      : log_sum(reinterpret_cast<float*>(view.address)), weight(log_sum + view.elements / 3) {}
  float *log_sum, *weight;
};

class HeadTile final : public Gpt2Visit {
 public:
  HeadTile(const Gpt2Config& config, int64_t tile_tokens)
      : width_(config.n_embd),
        vocabulary_(config.vocab_size),
        tiles_(config.tiling.embedding),
        tile_tokens_(tile_tokens),
        module_(config.layer_norm_epsilon) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const torch::autograd::AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    const TileRange rows = tile_range(vocabulary_, tiles_, tile);
    if (!tokens.logits.empty()) {
      fill_logits(module_, turn, tokens, rows);
      return;
    }
    for (int64_t first = 0; first < tokens.count(); first += tile_tokens_) {
      const TileRange some{first, std::min(first + tile_tokens_, tokens.count())};
      turn.pass() == Pass::kBackward ? backward(turn, tokens, rows, some) : forward(turn, tokens, rows, some);
    }
  }

 private:
  // A few tokens' logits at a time, in fp32: `with` gets them, the token of the first, and their place in `logits`.
  template <typename With>
  void for_few_tokens(at::Tensor& logits, const TileRange& some, With with) const {
    const int64_t step = softmax_rows(vocabulary_);
    for (int64_t at = 0; at < some.size(); at += step) {
      at::Tensor place = logits.narrow(0, at, std::min(step, some.size() - at));
      at::Tensor values = place.to(c10::ScalarType::Float, false, true);
      with(values, some.first + at, place);
    }
  }

  void forward(VisitTurn& turn, const Gpt2Tokens& tokens, const TileRange& rows, const TileRange& some) {
    const Statistics carried(turn.outputs()[0]);
    at::Tensor logits = module_.logits_of(module_.normed(tokens_of(turn.inputs()[0], some, width_)));
    for_few_tokens(logits, some, [&](at::Tensor& values, int64_t token, const at::Tensor&) {
      const float* const value = values.const_data_ptr<float>();
      const int64_t count = values.size(0);
      if (rows.first == 0) std::fill_n(carried.at_target + token, count, 0.0f);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t target = tokens.targets[static_cast<size_t>(token + i)];
        if (target < rows.first || target >= rows.end) continue;
        carried.at_target[token + i] = value[i * rows.size() + target - rows.first];
      }
      const at::Tensor maxima = at::amax(values, 1, true);
      const at::Tensor sums = at::sum(values.sub_(maxima).exp_(), 1, true);
      for (int64_t i = 0; i < count; ++i) {
        carry(carried, token + i, rows.first == 0 ? Begins::kYes : Begins::kNo, maxima.const_data_ptr<float>()[i],
              sums.const_data_ptr<float>()[i]);
      }
    });
  }

  enum class Begins { kNo, kYes };
  static void carry(const Statistics& carried, int64_t token, Begins begins, float maximum, float sum) {
    if (begins == Begins::kNo) {
      const float before = carried.maximum[token], both = std::max(before, maximum);
      sum = carried.sum[token] * std::exp(before - both) + sum * std::exp(maximum - both);
      maximum = both;
    }
    carried.maximum[token] = maximum;
    carried.sum[token] = sum;
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, const TileRange& rows, const TileRange& some) {
    const StatisticsGradient given(turn.output_gradients()[0]);
    at::Tensor to = tokens_of(turn.input_gradients()[0], some, width_);
    const auto targets = tokens.targets.subspan(static_cast<size_t>(some.first), static_cast<size_t>(some.size()));
    if (std::all_of(targets.begin(), targets.end(), [](int64_t target) { return target == kIgnoredTarget; })) {
      to.zero_();
      return;
    }
    NormedTokens made = normed_with_graph(module_, tokens_of(turn.inputs()[0], some, width_));
    at::Tensor logits = module_.logits_of(made.normed.detach());
    for_few_tokens(logits, some, [&](at::Tensor& values, int64_t token, at::Tensor& place) {
      const auto column = [&](float* plane) {
        return at::from_blob(plane + token, {values.size(0), 1}, at::TensorOptions().dtype(c10::ScalarType::Float));
      };
      values.sub_(column(given.log_sum)).exp_();
      float* const value = values.mutable_data_ptr<float>();
      for (int64_t i = 0; i < values.size(0); ++i) {
        const int64_t target = tokens.targets[static_cast<size_t>(token + i)];
        if (target >= rows.first && target < rows.end) value[i * rows.size() + target - rows.first] -= 1.0f;
      }
      place.copy_(values.mul_(column(given.weight)));
    });
    differentiate_logits(module_, turn, std::move(made), std::move(logits), to);
  }

  int64_t width_, vocabulary_, tiles_, tile_tokens_;
  HeadModule module_;
};

// The sink behind the head's tiles: reports the loss; the statistics' gradient may lie where they do.
class Loss final : public Gpt2Visit {
 public:
  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    if (turn.pass() == Pass::kForward || !tokens.logits.empty()) return;
    const Statistics statistics(turn.inputs()[0]);
    const int64_t counted = tokens.count() - std::count(tokens.targets.begin(), tokens.targets.end(), kIgnoredTarget);
    double loss = 0;
    for (int64_t i = 0; i < tokens.count(); ++i) {
      const bool counts = tokens.targets[static_cast<size_t>(i)] != kIgnoredTarget;
      const float log_sum = std::log(statistics.sum[i]), maximum = statistics.maximum[i];
      if (counts) loss += log_sum - (statistics.at_target[i] - maximum);
      if (turn.pass() != Pass::kBackward) continue;
      const StatisticsGradient gradient(turn.input_gradients()[0]);
      gradient.log_sum[i] = maximum + log_sum;
      gradient.weight[i] = counts ? static_cast<float>(turn.loss_scale() / static_cast<double>(counted)) : 0.0f;
    }
    turn.report_loss(counted > 0 ? loss / static_cast<double>(counted) : 0.0);
  }
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_head_tile(const Gpt2Config& config, int64_t tile_tokens) {
  return std::make_unique<HeadTile>(config, tile_tokens);
}
std::unique_ptr<Gpt2Visit> make_gpt2_loss() { return std::make_unique<Loss>(); }

}  // namespace sluice
