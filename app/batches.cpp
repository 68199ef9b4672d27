#include "app/batches.h"

#include <algorithm>

namespace sluice {

Batches::Batches(const Dataset& data, int64_t samples)
    : data_(data),
      sequence_(data.options().sequence_length),
      ids_(samples * sequence_),
      targets_(samples * sequence_) {}

TokenBatches Batches::fill(Part part, int64_t samples, const std::function<int64_t(int64_t)>& sample_at) {
  for (int64_t j = 0; j < samples; ++j) {
    const auto inputs = std::span(ids_).subspan(j * sequence_, sequence_);
    const auto targets = std::span(targets_).subspan(j * sequence_, sequence_);
    if (part == Part::kTraining) {
      data_.training_sample(sample_at(j), inputs, targets);
    } else {
      data_.validation_sample(sample_at(j), inputs, targets);
    }
  }
  const size_t tokens = samples * sequence_;
  return {.ids = std::span(ids_).first(tokens), .targets = std::span(targets_).first(tokens)};
}

std::optional<Validation> validate_run(Engine& engine, Gpt2& model, const Dataset& data,
                                       const ValidationOptions& options) {
  const BatchConfig& batch = options.batch;
  const int64_t wanted = std::max(batch.micro, kValidationTokens / data.options().sequence_length);
  const int64_t micro_batches = std::min(data.validation_samples(), wanted) / batch.micro;
  if (micro_batches == 0) return std::nullopt;
  const int64_t tokens_of_micro_batch = batch.micro * data.options().sequence_length;
  Batches batches(data, batch.train);
  std::vector<int64_t> samples(static_cast<size_t>(micro_batches * batch.micro));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<int64_t>(i) * data.validation_samples() / static_cast<int64_t>(samples.size());
  }
  double sum = 0;
  for (int64_t done = 0; done < micro_batches; done += batch.accumulation) {
    options.progress(done * tokens_of_micro_batch, micro_batches * tokens_of_micro_batch);
    const int64_t now = std::min(batch.accumulation, micro_batches - done);
    const TokenBatches tokens = batches.fill(Batches::Part::kValidation, now * batch.micro, [&](int64_t j) {
      return samples[static_cast<size_t>(done * batch.micro + j)];
    });
    sum += engine.evaluate(static_cast<int>(now), model.compute(tokens)) * static_cast<double>(now);
  }
  return Validation{.loss = sum / static_cast<double>(micro_batches),
                    .unigram_nats = data.validation_unigram_nats(samples),
                    .tokens = static_cast<int64_t>(samples.size()) * data.options().sequence_length};
}

}  // namespace sluice
