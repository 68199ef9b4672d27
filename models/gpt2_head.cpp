// The head: final LayerNorm, logits and cross-entropy, tile of tokens after tile of tokens, so that logits of a whole
// batch never exist. The softmax and its gradient are written out (fp32, few rows at a time, over the tile's logits).
#include "models/gpt2_head.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/errors.h"

namespace sluice {
namespace {

// The losses of a micro-batch's tokens.
struct Losses {
  const Targets& targets;
  at::Tensor sum;                         // fp64, of tokens whose target counts
  std::optional<double> gradient_factor;  // none: no gradient is wanted
};

// Adds those of rows of `logits`, the first of them token `first`'s. The rows become the gradient of their sum times
// the factor.
void cross_entropy(at::Tensor logits, int64_t first, Losses& losses) {
  const Targets& targets = losses.targets;
  at::Tensor values = logits.to(c10::ScalarType::Float, false, true);
  values.sub_(at::amax(values, 1, true));
  const at::Tensor at_target = targets.select(values, first);
  const at::Tensor sums = at::sum(values.exp_(), 1, true), ignored = targets.absent(first, values.size(0));
  losses.sum.add_(at::sum((at::log(sums) - at_target).masked_fill_(ignored, 0), c10::ScalarType::Double));
  if (!losses.gradient_factor) return;
  values.div_(sums);
  targets.subtract_one(values, first);
  logits.copy_(values.masked_fill_(ignored, 0).mul_(*losses.gradient_factor));
}

class Head final : public Gpt2Visit {
 public:
  Head(const Gpt2Config& config, const Gpt2Options& options)
      : width_(config.n_embd),
        vocabulary_(config.vocab_size),
        tile_tokens_(options.loss_tile_tokens),
        module_(config.layer_norm_epsilon, head_grain(options.device)) {}

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
    const Targets targets(tokens.targets, {0, vocabulary_});
    const bool trains = turn.pass() == Pass::kBackward;
    Losses losses{.targets = targets,
                  .sum = at::zeros({}, module_.rows.options().dtype(c10::ScalarType::Double)),
                  .gradient_factor = {}};
    if (trains) losses.gradient_factor = turn.loss_scale() / static_cast<double>(targets.count());
    for (int64_t first = 0; first < tokens.count(); first += tile_tokens_) {
      const TileRange tile{first, std::min(first + tile_tokens_, tokens.count())};
      trains ? train_tile(turn, tile, losses) : add_loss(turn, tile, losses);
    }
    report_mean(turn, std::move(losses.sum), targets.count());
  }

 private:
  void softmax(at::Tensor& logits, const TileRange& tile, Losses& losses) const {
    const int64_t step = softmax_rows(module_.grain(), vocabulary_);
    for (int64_t row = 0; row < tile.size(); row += step) {
      const int64_t count = std::min(step, tile.size() - row);
      cross_entropy(logits.narrow(0, row, count), tile.first + row, losses);
    }
  }

  void add_loss(VisitTurn& turn, const TileRange& tile, Losses& losses) {
    at::Tensor logits = module_.logits_of(module_.normed(tokens_of(turn.inputs()[0], tile, width_)));
    softmax(logits, tile, losses);
  }

  void train_tile(VisitTurn& turn, const TileRange& tile, Losses& losses) {
    at::Tensor to = tokens_of(turn.input_gradients()[0], tile, width_);
    if (losses.targets.all_absent(tile.first, tile.size())) {
      to.zero_();
      return;
    }
    WithGraph made = normed_with_graph(module_, tokens_of(turn.inputs()[0], tile, width_));
    at::Tensor logits = module_.logits_of(made.value.detach());
    softmax(logits, tile, losses);
    to.copy_(differentiate_logits(module_, turn, std::move(made), std::move(logits)));
  }

  int64_t width_, vocabulary_, tile_tokens_;
  HeadModule module_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_head(const Gpt2Config& config, const Gpt2Options& options) {
  return std::make_unique<Head>(config, options);
}

}  // namespace sluice
