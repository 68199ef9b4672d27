#include "models/gpt2.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "libtorch/visit_memory.h"
#include "models/gpt2_timing.h"
#include "models/gpt2_visits.h"
#include "models/gpt2_workspace.h"

namespace sluice {
namespace {

// They keep products of sizes within 64 bits.
constexpr int64_t kMaxMicroBatchTokens = int64_t{1} << 28, kMaxScores = int64_t{1} << 54;

Gpt2Options filled(const Gpt2Config& config, Gpt2Options options) {
  config.validate();
  if (options.sequence == 0) options.sequence = config.n_positions;
  if (options.batch < 1)
    throw ConfigError("a micro-batch of " + std::to_string(options.batch) + " sequences: 1 or more");
  if (options.sequence < 1 || options.sequence > config.n_positions) {
    throw ConfigError("data.sequence_length is " + std::to_string(options.sequence) + ": 1 to model.n_positions, " +
                      std::to_string(config.n_positions));
  }
  if (options.batch > kMaxMicroBatchTokens / options.sequence) {
    throw ConfigError("a micro-batch of " + std::to_string(options.batch) + " sequences of " +
                      std::to_string(options.sequence) + " tokens: at most " + std::to_string(kMaxMicroBatchTokens) +
                      " tokens");
  }
  const int64_t tokens = options.batch * options.sequence;
  if (config.n_head * options.sequence > kMaxScores / tokens) {
    throw ConfigError("a micro-batch of " + std::to_string(tokens) + " tokens in sequences of " +
                      std::to_string(options.sequence) + ", with " + std::to_string(config.n_head) +
                      " heads: at most " + std::to_string(kMaxScores) + " scores of attention");
  }
  if (options.loss_tile_tokens < 0) {
    throw ConfigError("sluice.loss_tile_tokens is " + std::to_string(options.loss_tile_tokens) +
                      ": 1 or more, or 0 for the default");
  }
  if (options.loss_tile_tokens == 0) {
    options.loss_tile_tokens = default_loss_tile_tokens(head_grain(options.device), config.vocab_size, tokens);
  }
  options.loss_tile_tokens = std::min(options.loss_tile_tokens, tokens);
  return options;
}

// `besides`: one that no word has.
void check_ids(std::span<const int64_t> ids, int64_t vocab_size, const char* what, int64_t besides = 0) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if ((ids[i] >= 0 && ids[i] < vocab_size) || ids[i] == besides) continue;
    throw ConfigError(std::string(what) + " " + std::to_string(i) + " of the batch is " + std::to_string(ids[i]) +
                      ", outside the vocabulary of " + std::to_string(vocab_size) +
                      ": model.vocab_size must cover the tokenizer's");
  }
}

}  // namespace

struct Gpt2::Impl {
  Impl(Gpt2Config model, Gpt2Options chosen)
      : config(std::move(model)), options(filled(config, chosen)), visits(config, options) {}

  Gpt2Probe probe() {
    return {.visits = visits, .options = options, .estimate_bytes = estimate_gpt2_workspace(config, options)};
  }
  void run(Use& use, const Gpt2Tokens& tokens) {
    std::optional<VisitScope> scope;
    if (memory) scope.emplace(*memory);
    visits.run(use.visit(), use, tokens);
  }

  Gpt2Config config;
  Gpt2Options options;
  Gpt2Visits visits;
  std::optional<VisitMemory> memory;
};

Gpt2::Gpt2(Gpt2Config config, Gpt2Options options) : impl_(std::make_unique<Impl>(std::move(config), options)) {}
Gpt2::~Gpt2() = default;
Gpt2::Gpt2(Gpt2&&) noexcept = default;
Gpt2& Gpt2::operator=(Gpt2&&) noexcept = default;

const Gpt2Config& Gpt2::config() const { return impl_->config; }
const Gpt2Options& Gpt2::options() const { return impl_->options; }
const ModelSpec& Gpt2::spec() const { return impl_->visits.layout().spec; }
const ParameterTiles& Gpt2::tiles() const { return impl_->visits.layout().tiles; }

int64_t Gpt2::parameter_count() const { return spec().elements(); }

double Gpt2::training_flops_per_token() const {
  const Gpt2Config& c = impl_->config;
  // Multiply-adds of one token: the blocks' and the head's matrices, and attention over half of the sequence on
  // average.
  const double matrices =
      static_cast<double>(c.n_layer * (4 * c.n_embd + 2 * c.inner()) * c.n_embd + c.vocab_size * c.n_embd);
  const double attention = static_cast<double>(c.n_layer * impl_->options.sequence * c.n_embd);
  return 6 * (matrices + attention);
}

ComputeMemory Gpt2::measure_memory() { return measure_gpt2_memory(impl_->probe()); }
std::vector<VisitTime> Gpt2::measure_visits(const ComputeMemory& memory) {
  return time_gpt2_visits(impl_->probe(), memory);
}
int64_t Gpt2::bytes_to_measure_memory() const { return bytes_to_measure_gpt2(impl_->probe()); }
int64_t Gpt2::bytes_to_measure_visits(const ComputeMemory& memory) const {
  return bytes_to_time_gpt2(impl_->probe(), memory);
}
std::vector<VisitTime> Gpt2::estimate_visits(double tflop_per_s) const {
  return estimate_gpt2_visits(impl_->visits.layout(), impl_->config, impl_->options, tflop_per_s);
}
double Gpt2::trial_flops() const { return gpt2_trial_flops(impl_->visits.layout(), impl_->config, impl_->options); }
ComputeMemory Gpt2::estimate_memory() const {
  return {.workspace_bytes = estimate_gpt2_workspace(impl_->config, impl_->options),
          .graph_bytes = estimate_gpt2_graphs(impl_->visits.layout(), impl_->config, impl_->options)};
}

void Gpt2::use_memory(const Engine& engine) {
  leave_memory();
  impl_->memory.emplace(engine.workspace(), engine.compute_stream());
}
void Gpt2::leave_memory() {
  impl_->visits.forget_graphs();
  impl_->memory.reset();
}
int64_t Gpt2::workspace_peak_bytes() const { return impl_->memory ? impl_->memory->high_water_bytes() : 0; }

Compute Gpt2::compute(TokenBatches tokens) {
  const int64_t count = impl_->options.batch * impl_->options.sequence;
  if (tokens.ids.size() != tokens.targets.size() || tokens.ids.empty() ||
      static_cast<int64_t>(tokens.ids.size()) % count != 0) {
    throw ConfigError("a batch of " + std::to_string(tokens.ids.size()) + " tokens and " +
                      std::to_string(tokens.targets.size()) +
                      " targets: as many of each, a multiple of the micro-batch's " + std::to_string(count));
  }
  check_ids(tokens.ids, impl_->config.vocab_size, "token");
  check_ids(tokens.targets, impl_->config.vocab_size, "target", kIgnoredTarget);
  return [impl = impl_.get(), tokens, count](Use& use) {
    const size_t first = static_cast<size_t>(use.micro_batch() * count), size = static_cast<size_t>(count);
    SLUICE_CHECK(first + size <= tokens.ids.size(), "more micro-batches than the batch holds");
    impl->run(use, {.batch = impl->options.batch,
                    .sequence = impl->options.sequence,
                    .ids = tokens.ids.subspan(first, size),
                    .targets = tokens.targets.subspan(first, size),
                    .logits = {}});
  };
}

Compute Gpt2::next_token_logits(std::span<const int64_t> ids, std::span<float> logits) {
  if (ids.empty() || static_cast<int64_t>(ids.size()) > impl_->options.sequence) {
    throw ConfigError("a prompt of " + std::to_string(ids.size()) + " tokens: 1 to " +
                      std::to_string(impl_->options.sequence));
  }
  check_ids(ids, impl_->config.vocab_size, "token");
  SLUICE_CHECK(static_cast<int64_t>(logits.size()) == impl_->config.vocab_size,
               "one logit for each entry of the vocabulary");
  return [impl = impl_.get(), ids, logits](Use& use) {
    SLUICE_CHECK(use.pass() == Pass::kEvaluate, "next_token_logits is for evaluate()");
    impl->run(use,
              {.batch = 1, .sequence = static_cast<int64_t>(ids.size()), .ids = ids, .targets = {}, .logits = logits});
  };
}

}  // namespace sluice
