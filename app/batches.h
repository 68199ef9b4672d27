// Samples as the model takes them: [micro-batches][batch][sequence], contiguous.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "configs/run_config.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "models/gpt2.h"

namespace sluice {

// Reused from step to step; the tokens of the last fill() stay until the next.
class Batches {
 public:
  Batches(const Dataset& data, int64_t samples);
  // Sample j of the batch is `sample_at(j)`, of the training part or of the validation part.
  enum class Part { kTraining, kValidation };
  TokenBatches fill(Part part, int64_t samples, const std::function<int64_t(int64_t)>& sample_at);

 private:
  const Dataset& data_;
  int64_t sequence_;
  std::vector<int64_t> ids_, targets_;
};

struct Validation {
  double loss = 0, unigram_nats = 0;
  int64_t tokens = 0;
};
// The mean loss over whole micro-batches, samples spread evenly over the validation part, at most kValidationTokens
// tokens or one micro-batch, beside the unigram cross-entropy of the same tokens. nullopt where the part holds less
// than a micro-batch.
constexpr int64_t kValidationTokens = 16384;
struct ValidationOptions {
  BatchConfig batch;
  std::function<void(int64_t done, int64_t total)> progress;  // tokens; before the first of them, and as it goes
};
std::optional<Validation> validate_run(Engine& engine, Gpt2& model, const Dataset& data,
                                       const ValidationOptions& options);

}  // namespace sluice
