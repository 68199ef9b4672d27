// Continuations of a prompt, sampled token by token from the model's next-token distribution.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "engine/engine.h"
#include "models/gpt2.h"

namespace sluice {

// A prompt's ids; of an empty one, what stands before every document. Throws ConfigError where ids are another
// tokenizer's and the prompt has none of them.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, std::string_view prompt);

struct SampleOptions {
  std::vector<int32_t> prompt;
  int64_t tokens = 64;     // at most; the end of the document ends it
  double temperature = 1;  // 0: the likeliest token
  uint64_t seed = 0;
  std::function<void(int64_t)> progress;  // is told how many tokens are there
};

// Text after the prompt; the model sees its last `sequence` tokens. Randomness: element i of a stream of the seed.
std::string sample(Engine& engine, Gpt2& model, const Tokenizer& tokenizer, const SampleOptions& options);

// The token that a uniform number in [0, 1) falls on; pure.
int32_t pick_token(std::span<const float> logits, double temperature, double uniform);

}  // namespace sluice
