// The kinds of visits of a GPT-2, each around a LibTorch module whose parameters are empty except while a visit runs,
// when they are views of planned device memory. No LibTorch in this header.
//
// Bits: a visit's results depend on its values, shapes and LibTorch's thread count alone. Gradients are recomputed with
// autograd from the visit's input; each is contributed as soon as it is known, so that few live at once.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "libtorch/visit_turn.h"
#include "models/gpt2.h"

namespace sluice {

// The micro-batch a visit works on: `batch` sequences of `sequence` tokens, no more than its boundary tensors hold.
struct Gpt2Tokens {
  int64_t batch = 1, sequence = 1;
  std::span<const int64_t> ids;      // the embedding reads them
  std::span<const int64_t> targets;  // the head reads them
  std::span<float> logits;           // kEvaluate, where given: the head fills it for the last token and reports no loss
  int64_t count() const { return batch * sequence; }
};

class Gpt2Visit {
 public:
  virtual ~Gpt2Visit() = default;
  virtual void run(VisitTurn& turn, const Gpt2Tokens& tokens) = 0;
};

std::unique_ptr<Gpt2Visit> make_gpt2_embedding(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_block(const Gpt2Config& config);
std::unique_ptr<Gpt2Visit> make_gpt2_head(const Gpt2Config& config, int64_t tile_tokens);

// Parameters of each kind, in the order of its visit's weights; block names are relative to "transformer.h.<i>.".
std::vector<ParameterSpec> gpt2_block_parameters(const Gpt2Config& config);
ModelSpec gpt2_model_spec(const Gpt2Config& config, const Gpt2Options& options);

// The default of loss_tile_tokens: tokens whose logits are about 8 Mi elements, a micro-batch at the most.
int64_t default_loss_tile_tokens(int64_t vocab_size, int64_t tokens);
// Rows of logits whose softmax is taken at once, and rows of the head's weight whose gradient is made at once.
int64_t softmax_rows(int64_t vocab_size);
int64_t head_gradient_rows(int64_t width);
// Columns of the right operand that a product of fp16 matrices widens at once, from its rows and the left one's.
int64_t product_columns(int64_t left_rows, int64_t right_rows);

}  // namespace sluice
