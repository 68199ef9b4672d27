// A turn of a visit on memory of its own, laid out as the engine lays it out, and with the engine's arithmetic on
// contributions: what timing a visit needs. Values are small numbers without meaning. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/arena.h"
#include "core/geometry.h"
#include "libtorch/visit_turn.h"

namespace sluice {

class PracticeTurn final : public VisitTurn {
 public:
  // Visit `visit` of `model`, whose geometry is `geometry`; both outlive it. Takes the bytes of the visit's weights, of
  // their open gradients, of its boundary tensors, and of its graph.
  PracticeTurn(const ModelSpec& model, const Geometry& geometry, int visit, DType weights, int64_t graph_bytes);

  int64_t bytes() const { return memory_.bytes(); }  // that it took
  // As a turn of this pass begins: every weight's next contribution is its first.
  enum class Graph : uint8_t { kNone, kKept };
  void begin(Pass pass, Graph graph);

  Pass pass() const override { return pass_; }
  std::span<const WeightView> weights() const override { return weights_; }
  std::span<const TensorView> inputs() const override { return inputs_; }
  std::span<const TensorView> outputs() const override { return outputs_; }
  std::span<const TensorView> output_gradients() const override { return outputs_; }
  std::span<const TensorView> input_gradients() const override { return inputs_; }
  std::span<std::byte> graph() const override { return keeping_ == Graph::kKept ? graph_ : std::span<std::byte>(); }
  void contribute(int weight, const std::byte* gradient, DType dtype) override;
  void contribute_part(int weight, int64_t first, const std::byte* gradient, int64_t elements, DType dtype) override;
  double loss_scale() const override { return 1; }
  void report_loss(double) override {}

 private:
  Pass pass_ = Pass::kForward;
  Graph keeping_ = Graph::kNone;
  Arena memory_;
  std::span<std::byte> graph_;
  std::vector<WeightView> weights_;
  std::vector<float*> open_;  // per weight
  enum class Contributed : uint8_t { kNo, kYes };
  std::vector<Contributed> contributed_;  // per weight
  std::vector<TensorView> inputs_, outputs_;
};

}  // namespace sluice
