#include <fmt/format.h>

#include "core/errors.h"
#include "models/gpt2.h"

namespace sluice {
namespace {

void check_positive(const char* key, int64_t value) {
  if (value < 1) throw ConfigError(fmt::format("model.{} is {}: a positive integer", key, value));
}

void check_no_dropout(const char* key, double value) {
  if (value == 0) return;
  throw ConfigError(
      fmt::format("model.{0} is {1}: dropout is not there yet, only 0 is allowed; train without it with "
                  "--set model.{0}=0",
                  key, value));
}

}  // namespace

void Gpt2Config::validate() const {
  check_positive("vocab_size", vocab_size);
  check_positive("n_positions", n_positions);
  check_positive("n_embd", n_embd);
  check_positive("n_layer", n_layer);
  check_positive("n_head", n_head);
  if (n_inner < 0)
    throw ConfigError(fmt::format("model.n_inner is {}: a positive integer or null (4 x n_embd)", n_inner));
  if (n_embd % n_head != 0) {
    throw ConfigError(fmt::format("model.n_head is {}: it must divide model.n_embd, {}", n_head, n_embd));
  }
  if (activation_function != "gelu_new" && activation_function != "gelu_pytorch_tanh") {
    throw ConfigError(
        fmt::format("model.activation_function is \"{}\": \"gelu_new\" (the tanh form of GELU) is what there is",
                    activation_function));
  }
  if (!(layer_norm_epsilon > 0)) {
    throw ConfigError(fmt::format("model.layer_norm_epsilon is {}: a number above 0", layer_norm_epsilon));
  }
  if (!(initializer_range >= 0)) {
    throw ConfigError(fmt::format("model.initializer_range is {}: a number, 0 or more", initializer_range));
  }
  check_no_dropout("resid_pdrop", resid_pdrop);
  check_no_dropout("embd_pdrop", embd_pdrop);
  check_no_dropout("attn_pdrop", attn_pdrop);
}

}  // namespace sluice
