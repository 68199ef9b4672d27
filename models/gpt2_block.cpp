// A block: x + P(f(x)) twice, f being attention, then the MLP.
//
// Backward works half by half, so the block's output is never computed again, and the MLP's intermediates are gone
// before attention's gradients are made. Where a turn has memory for it, the forward leaves there what the backward
// would compute again, with the same operations.
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "libtorch/workspace.h"
#include "models/gpt2_half.h"

namespace sluice {
namespace {

// In the order of the block's parameters.
constexpr HalfWeights kAttention = {0, 1, 2, 3, 4, 5}, kMlp = {6, 7, 8, 9, 10, 11};

class Block final : public Gpt2Visit {
 public:
  explicit Block(const Gpt2Config& config)
      : width_(config.n_embd), attention_(make_attention(config)), mlp_(make_mlp(config)) {}

  void run(VisitTurn& turn, const Gpt2Tokens& tokens, int) override {
    SLUICE_CHECK(turn.weights().size() == kAttention.size() + kMlp.size(), "a block's weights");
    const torch::autograd::AutoGradMode no_graph(false);
    const HalfBinding attention(*attention_, turn, kAttention), mlp(*mlp_, turn, kMlp);
    if (turn.pass() == Pass::kBackward) return backward(turn, tokens);
    turn.graph().empty() ? forward(turn, tokens) : forward_keeping(turn, tokens);
  }

  int64_t graph_peak_bytes() const override {
    int64_t peak = 0;
    for (const auto& [at, graph] : graphs_) peak = std::max(peak, graph.memory.high_water_bytes());
    return peak;
  }
  void forget_graphs() override { graphs_.clear(); }

 private:
  // What the backward starts from: both halves up to their activation, and the sum between them.
  struct Halves {
    WithGraph attention, mlp;
    at::Tensor middle;
  };
  struct Graph {
    Workspace memory;  // goes after the tensors in it
    Halves halves;
  };

  static at::Tensor differentiate_whole(const HalfTurn& half, WithGraph made, const at::Tensor& output_gradient) {
    contribute_projection_bias(half, output_gradient);
    return differentiate(half, std::move(made), output_gradient);
  }

  Halves halves(const at::Tensor& x, const Gpt2Tokens& tokens) {
    Halves made{.attention = inner_with_graph(*attention_, x, tokens), .mlp = {}, .middle = at::empty_like(x)};
    attention_->projection.begin(made.middle, x, made.attention.value.detach());
    made.mlp = inner_with_graph(*mlp_, made.middle, tokens);
    return made;
  }

  void forward_keeping(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    at::Tensor y = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    Graph& graph = graph_in(turn.graph());
    {
      const WorkspaceScope scope(graph.memory);
      graph.halves = halves(x, tokens);
    }
    mlp_->projection.begin(y, graph.halves.middle, mlp_->activate(graph.halves.mlp.value.detach()));
  }

  // An empty one. What is there is of a step that was given up.
  Graph& graph_in(std::span<std::byte> memory) {
    auto graph = graphs_.find(memory.data());
    if (graph == graphs_.end()) graph = graphs_.emplace(memory.data(), Graph{Workspace(memory), {}}).first;
    const int64_t bytes = std::ssize(memory) / Workspace::kAlignmentBytes * Workspace::kAlignmentBytes;
    SLUICE_CHECK(graph->second.memory.bytes() == bytes,
                 "a graph's memory has another size than a graph before had there");
    graph->second.halves = {};
    return graph->second;
  }

  // The graph that the forward kept, or a new one.
  Halves take_halves(VisitTurn& turn, const at::Tensor& x, const Gpt2Tokens& tokens) {
    if (turn.graph().empty()) return halves(x, tokens);
    Halves kept = std::exchange(graphs_.at(turn.graph().data()).halves, {});
    SLUICE_CHECK(kept.middle.defined(), "a backward whose forward kept no graph");
    return kept;
  }

  void forward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    at::Tensor y = tensor_of(turn.outputs()[0], {tokens.count(), width_});
    attention_->projection.begin(y, x, attention_->inner(x, tokens));
    // The attention's sum lies where the block's output will: the last operation reads it, element by element.
    mlp_->projection.begin(y, y, mlp_->activate(mlp_->inner(y, tokens)));
  }

  void backward(VisitTurn& turn, const Gpt2Tokens& tokens) {
    const at::Tensor x = tensor_of(turn.inputs()[0], {tokens.count(), width_});
    const at::Tensor y_gradient = tensor_of(turn.output_gradients()[0], {tokens.count(), width_});
    at::Tensor x_gradient = tensor_of(turn.input_gradients()[0], {tokens.count(), width_});
    Halves made = take_halves(turn, x, tokens);
    at::Tensor middle_gradient = differentiate_whole({*mlp_, turn, kMlp}, std::move(made.mlp), y_gradient);
    made.middle.reset();
    middle_gradient.add_(y_gradient);
    const at::Tensor inner_gradient =
        differentiate_whole({*attention_, turn, kAttention}, std::move(made.attention), middle_gradient);
    at::add_out(x_gradient, middle_gradient, inner_gradient);
  }

  int64_t width_;
  std::unique_ptr<Half> attention_, mlp_;
  std::map<const std::byte*, Graph> graphs_;  // by the memory that a turn gave for it
};

}  // namespace

std::unique_ptr<Gpt2Visit> make_gpt2_block(const Gpt2Config& config) { return std::make_unique<Block>(config); }

}  // namespace sluice
