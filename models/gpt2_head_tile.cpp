// Some rows of the head, and the loss behind all of them.
//
// The softmax is over all rows, so it goes through the boundary tensor "statistics", fp32, in three planes of a value
// for each token. On the way forward every tile carries on
//   maximum | sum of exponentials below it | the target's logit
// and on the way back the loss hands its tiles, as that tensor's gradient,
//   log-sum-exp | weight of the token in the loss, times its scale | nothing
// from which each makes its logits' gradient, exp(logit - log-sum-exp) - [is the target] times the weight, alone.
#include <ATen/ops/amax.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <utility>

#include "libtorch/tensors.h"
#include "models/gpt2_head.h"

namespace sluice {
namespace {

// One of the three planes, of some tokens: [tokens, 1].
at::Tensor plane(const TensorView& view, int which, const TileRange& tokens) {
  const auto* const values = reinterpret_cast<const float*>(view.address) + which * (view.elements / 3);
  return tensor_at(values + tokens.first, DType::kFp32, {tokens.size(), 1});
}
struct Statistics {
  Statistics(const TensorView& view, const TileRange& tokens)
      : maximum(plane(view, 0, tokens)), sum(plane(view, 1, tokens)), at_target(plane(view, 2, tokens)) {}
  at::Tensor maximum, sum, at_target;
};
struct StatisticsGradient {
  StatisticsGradient(const TensorView& view, const TileRange& tokens)
      : log_sum(plane(view, 0, tokens)), weight(plane(view, 1, tokens)) {}
  at::Tensor log_sum, weight;
};

class HeadTile final : public Gpt2Visit {
 public:
  HeadTile(const Gpt2Config& config, const Gpt2Options& options)
      : width_(config.n_embd),
        vocabulary_(config.vocab_size),
        tiles_(config.tiling.embedding),
        tile_tokens_(options.loss_tile_tokens),
        module_(config.layer_norm_epsilon, head_grain(options.device)) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int tile) override {
    const torch::autograd::AutoGradMode no_graph(false);
    const Binding bound(module_, turn.weights());
    const TileRange rows = tile_range(vocabulary_, tiles_, tile);
    if (!tokens.logits.empty()) {
      fill_logits(module_, turn, tokens, rows);
      return;
    }
    const Targets targets(tokens.targets, rows);
    for (int64_t first = 0; first < tokens.count(); first += tile_tokens_) {
      const TileRange some{first, std::min(first + tile_tokens_, tokens.count())};
      turn.pass() == Pass::kBackward ? backward(turn, tokens, targets, some)
                                     : forward(turn, targets, rows.first == 0 ? Begins::kYes : Begins::kNo, some);
    }
  }

 private:
  enum class Begins : uint8_t { kNo, kYes };

  // A few tokens' logits at a time, in fp32: `with` gets them, which tokens they are of, and their place in `logits`.
  template <typename With>
  void for_few_tokens(const at::Tensor& logits, const TileRange& some, With with) const {
    const int64_t step = softmax_rows(module_.grain(), vocabulary_);
    for (int64_t at = 0; at < some.size(); at += step) {
      const int64_t count = std::min(step, some.size() - at);
      at::Tensor place = logits.narrow(0, at, count);
      at::Tensor values = place.to(c10::ScalarType::Float, false, true);
      with(values, TileRange{some.first + at, some.first + at + count}, place);
    }
  }

  void forward(VisitTurn& turn, const Targets& targets, Begins begins, const TileRange& some) {
    const at::Tensor logits = module_.logits_of(module_.normed(tokens_of(turn.inputs()[0], some, width_)));
    for_few_tokens(logits, some, [&](at::Tensor& values, const TileRange& few, const at::Tensor&) {
      Statistics carried(turn.outputs()[0], few);
      if (begins == Begins::kYes) carried.at_target.zero_();
      carried.at_target.add_(targets.select(values, few.first).masked_fill_(targets.absent(few.first, few.size()), 0));
      const at::Tensor maxima = at::amax(values, 1, true);
      carry(carried, begins, maxima, at::sum(values.sub_(maxima).exp_(), 1, true));
    });
  }

  static void carry(Statistics& carried, Begins begins, const at::Tensor& maxima, const at::Tensor& sums) {
    if (begins == Begins::kYes) {
      carried.maximum.copy_(maxima);
      carried.sum.copy_(sums);
      return;
    }
    const at::Tensor both = at::maximum(carried.maximum, maxima);
    carried.sum.mul_((carried.maximum - both).exp_()).add_((maxima - both).exp_().mul_(sums));
    carried.maximum.copy_(both);
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens, const Targets& targets, const TileRange& some) {
    at::Tensor to = tokens_of(turn.input_gradients()[0], some, width_);
    const auto of_some = tokens.targets.subspan(static_cast<size_t>(some.first), static_cast<size_t>(some.size()));
    if (std::ranges::all_of(of_some, [](int64_t target) { return target == kIgnoredTarget; })) {
      to.zero_();
      return;
    }
    WithGraph made = normed_with_graph(module_, tokens_of(turn.inputs()[0], some, width_));
    at::Tensor logits = module_.logits_of(made.value.detach());
    for_few_tokens(logits, some, [&](at::Tensor& values, const TileRange& few, at::Tensor& place) {
      const StatisticsGradient given(turn.output_gradients()[0], few);
      values.sub_(given.log_sum).exp_();
      targets.subtract_one(values, few.first);
      place.copy_(values.mul_(given.weight));
    });
    to.copy_(differentiate_logits(module_, turn, std::move(made), std::move(logits)));
  }

  int64_t width_, vocabulary_, tiles_, tile_tokens_;
  HeadModule module_;
};

// The sink behind the head's tiles: reports the loss; the statistics' gradient may lie where they do.
class Loss final : public Gpt2Visit {
 public:
  explicit Loss(const Gpt2Config& config) : vocabulary_(config.vocab_size) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    if (turn.pass() == Pass::kForward || !tokens.logits.empty()) return;
    const torch::autograd::AutoGradMode no_graph(false);
    const TileRange all{0, tokens.count()};
    const Targets targets(tokens.targets, {0, vocabulary_});
    const Statistics statistics(turn.inputs()[0], all);
    const at::Tensor log_sum = at::log(statistics.sum), ignored = targets.absent(0, all.size());
    const at::Tensor losses = (log_sum - (statistics.at_target - statistics.maximum)).masked_fill_(ignored, 0);
    at::Tensor loss = at::sum(losses, c10::ScalarType::Double);
    const auto counted = static_cast<double>(targets.count());
    if (turn.pass() == Pass::kBackward) {
      const at::Tensor both = statistics.maximum + log_sum;  // before anything is written
      StatisticsGradient gradient(turn.input_gradients()[0], all);
      gradient.log_sum.copy_(both);
      gradient.weight.fill_(turn.loss_scale() / counted).masked_fill_(ignored, 0);
    }
    report_mean(turn, std::move(loss), targets.count());
  }

 private:
  int64_t vocabulary_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_head_tile(const Gpt2Config& config, const Gpt2Options& options) {
  return std::make_unique<HeadTile>(config, options);
}
std::unique_ptr<Gpt2Visit> make_gpt2_loss(const Gpt2Config& config) { return std::make_unique<Loss>(config); }

}  // namespace sluice
