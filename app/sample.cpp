#include "app/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/errors.h"
#include "core/random.h"

namespace sluice {

int32_t pick_token(std::span<const float> logits, double temperature, double uniform) {
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) {
    throw NumericsError("the model's logits are not all finite: no token can be picked");
  }
  const auto highest = std::max_element(logits.begin(), logits.end());
  const int32_t likeliest = static_cast<int32_t>(highest - logits.begin());
  if (temperature <= 0) return likeliest;
  std::vector<double> upto(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((static_cast<double>(logits[i]) - static_cast<double>(*highest)) / temperature);
    upto[i] = sum;
  }
  const auto found = std::upper_bound(upto.begin(), upto.end(), uniform * sum);
  return found == upto.end() ? likeliest : static_cast<int32_t>(found - upto.begin());
}

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt) {
  std::vector<int32_t> ids;
  tokenizer.encode(prompt, ids);
  if (!ids.empty()) return ids;
  if (const std::optional<int32_t> end = tokenizer.end_of_document()) return {*end};
  throw ConfigError("the prompt is empty, and of ids none is known to stand before a document");
}

std::string sample(Engine& engine, Gpt2& model, const Tokenizer& tokenizer, const SampleOptions& options) {
  std::vector<int32_t> continuation;
  std::vector<int64_t> ids(options.prompt.begin(), options.prompt.end());
  std::vector<float> logits(model.config().vocab_size);
  const size_t vocabulary = std::min(tokenizer.vocabulary_size(), model.config().vocab_size);
  const uint64_t stream = stream_of("sample");
  for (int64_t i = 0; i < options.tokens; ++i) {
    const size_t seen = std::min<size_t>(ids.size(), model.options().sequence);
    engine.evaluate(1, model.next_token_logits(std::span(ids).last(seen), logits));
    const int32_t next = pick_token(std::span(logits).first(vocabulary), options.temperature,
                                    uniform_at(options.seed, stream, static_cast<uint64_t>(i)));
    if (next == tokenizer.end_of_document()) break;
    ids.push_back(next);
    continuation.push_back(next);
    if (options.progress) options.progress(i + 1);
  }
  return tokenizer.decode(continuation);
}

}  // namespace sluice
