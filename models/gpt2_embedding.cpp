// The embedding: a row of wte for the token, a row of wpe for its position.
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "libtorch/tensors.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

class EmbeddingModule final : public BoundModule {
 public:
  EmbeddingModule() : wte(add_parameter("wte")), wpe(add_parameter("wpe")) {}
  at::Tensor wte, wpe;
};

class Embedding final : public Gpt2Visit {
 public:
  explicit Embedding(const Gpt2Config& config) : width_(config.n_embd) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    const torch::autograd::AutoGradMode no_graph(false);
    turn.pass() == Pass::kBackward ? backward(turn, tokens) : forward(turn, tokens);
  }

 private:
  void forward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const Binding bound(module_, turn.weights());
    at::Tensor y = tensor_of(turn.outputs()[0], {tokens.batch, tokens.sequence, width_});
    y.copy_(at::embedding(module_.wte, tensor_from_host(tokens.ids).view({tokens.batch, tokens.sequence})));
    y.add_(module_.wpe.narrow(0, 0, tokens.sequence));
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const TensorView& gradient = turn.output_gradients()[0];
    add_rows(turn, kWte, tensor_from_host(tokens.ids), tensor_of(gradient, {tokens.count(), width_}));
    const int64_t sequence_bytes = tokens.sequence * width_ * bytes_of(gradient.dtype);
    for (int64_t i = 0; i < tokens.batch; ++i) {
      turn.contribute_part(kWpe, 0, {gradient.address + i * sequence_bytes, gradient.dtype, tokens.sequence * width_});
    }
  }

  int64_t width_;
  EmbeddingModule module_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_embedding(const Gpt2Config& config) { return std::make_unique<Embedding>(config); }

}  // namespace sluice
