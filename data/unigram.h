// The unigram baseline. Pure.
#pragma once
#include <cstdint>
#include <span>

namespace sluice {

// Cross-entropy, in nats per token, of tokens that occur `counts` times under their own relative frequencies:
// -sum (c/n) ln(c/n). 0 for no tokens.
double unigram_nats(std::span<const int64_t> counts);

}  // namespace sluice
