#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "models/gpt2.h"

namespace sluice {
namespace {

// The limits are beyond any model, and keep products of sizes within 64 bits.
void check_size(const char* key, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw ConfigError(fmt::format("model.{} is {}: a positive integer, {} at the most", key, value, most));
}

// All at once: a Hugging Face folder has three.
void check_no_dropout(const Gpt2Config& config) {
  std::vector<std::string> given, without;
  for (const auto& [key, value] :
       {std::pair("resid_pdrop", config.resid_pdrop), std::pair("embd_pdrop", config.embd_pdrop),
        std::pair("attn_pdrop", config.attn_pdrop)}) {
    if (value == 0) continue;
    given.push_back(fmt::format("model.{} is {}", key, value));
    without.push_back(fmt::format("--set model.{}=0", key));
  }
  if (given.empty()) return;
  throw ConfigError(fmt::format("{}: dropout is not there yet, only 0 is allowed; train without it with {}",
                                fmt::join(given, ", "), fmt::join(without, " ")));
}

void check_tiles(const char* key, int64_t tiles, int64_t most, const std::string& why) {
  if (tiles >= 1 && tiles <= most) return;
  throw ConfigError(fmt::format("model.tiling.{} is {}: 1 (whole) to {}, {}", key, tiles, most, why));
}

}  // namespace

Gpt2Config::ProductTiles Gpt2Config::product_tiles() const {
  const int64_t tiles = (tiling.linear + n_head - 1) / n_head, features = n_embd / n_head;
  const int64_t output = std::clamp<int64_t>((tiles + 2) / 4, 1, features);
  return {.input = std::clamp<int64_t>(tiles - output, 1, features), .output = output};
}
int64_t Gpt2Config::position_tiles() const { return std::min(tiling.embedding, n_positions); }

void Gpt2Config::validate() const {
  check_size("vocab_size", vocab_size, int64_t{1} << 26);
  check_size("n_positions", n_positions, int64_t{1} << 26);
  check_size("n_embd", n_embd, int64_t{1} << 20);
  check_size("n_layer", n_layer, int64_t{1} << 14);
  check_size("n_head", n_head, n_embd);
  check_size("n_inner", inner(), int64_t{1} << 22);
  if (n_embd % n_head != 0) {
    throw ConfigError(fmt::format("model.n_head is {}: it must divide model.n_embd, {}", n_head, n_embd));
  }
  if (activation_function != "gelu_new" && activation_function != "gelu_pytorch_tanh") {
    throw ConfigError(
        fmt::format("model.activation_function is \"{}\": \"gelu_new\" (the tanh form of GELU) is what there is",
                    activation_function));
  }
  if (!(layer_norm_epsilon >= std::numeric_limits<float>::min())) {  // less may be 0 in fp32
    throw ConfigError(fmt::format("model.layer_norm_epsilon is {}: a number above 0, 1.2e-38 at the least as in fp32",
                                  layer_norm_epsilon));
  }
  if (!(initializer_range >= 0)) {
    throw ConfigError(fmt::format("model.initializer_range is {}: a number, 0 or more", initializer_range));
  }
  check_tiles("linear", tiling.linear, inner(), "model.n_inner: the MLP is cut between its hidden features");
  check_tiles("embedding", tiling.embedding, vocab_size, "model.vocab_size: the embedding is cut between its rows");
  check_no_dropout(*this);
}

}  // namespace sluice
