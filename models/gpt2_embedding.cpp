// The embedding: a row of wte for the token, a row of wpe for its position.
#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "libtorch/tensors.h"
#include "models/gpt2_module.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

enum WeightIndex : int { kWte, kWpe };

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
    const at::Tensor ids = at::from_blob(const_cast<int64_t*>(tokens.ids.data()), {tokens.batch, tokens.sequence},
                                         at::TensorOptions().dtype(c10::ScalarType::Long));
    y.copy_(at::embedding(module_.wte, ids));
    y.add_(module_.wpe.narrow(0, 0, tokens.sequence));
  }

  // Rows add in the order of tokens, in fp32.
  void backward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const TensorView& gradient = turn.output_gradients()[0];
    const int64_t row_bytes = width_ * bytes_of(gradient.dtype);
    for (int64_t i = 0; i < tokens.count(); ++i) {
      const std::byte* row = gradient.address + i * row_bytes;
      turn.contribute_part(kWte, tokens.ids[static_cast<size_t>(i)] * width_, row, width_, gradient.dtype);
      turn.contribute_part(kWpe, i % tokens.sequence * width_, row, width_, gradient.dtype);
    }
  }

  int64_t width_;
  EmbeddingModule module_;
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_embedding(const Gpt2Config& config) { return std::make_unique<Embedding>(config); }

}  // namespace sluice
