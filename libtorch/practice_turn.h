// A turn of a visit on a device's memory, laid out as the engine lays it out, and with the engine's arithmetic on
// contributions: what timing a visit needs. Values are what lies there. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "libtorch/visit_turn.h"
#include "offload/device.h"

namespace sluice {

class PracticeTurn final : public VisitTurn {
 public:
  // Of visit `visit` of a model, whose geometry is `geometry`.
  struct Of {
    const ModelSpec& model;  // outlives it, as the geometry does
    const Geometry& geometry;
    int visit = 0;
    DType weights = DType::kFp32;
    int64_t graph_bytes = 0;
  };
  // Of the visit's weights, of their open gradients, of its boundary tensors, and of its graph.
  static int64_t bytes(const Of& of);

  // On `device`, in bytes(of) of its memory from `at` on.
  PracticeTurn(const Of& of, Device& device, std::byte* at);

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
  void contribute_part(int weight, int64_t first, const GradientView& part) override;
  std::span<float> open_gradient(int weight) override;
  double loss_scale() const override { return 1; }
  void report_loss(const double*) override {}

 private:
  Device& device_;
  Pass pass_ = Pass::kForward;
  Graph keeping_ = Graph::kNone;
  std::span<std::byte> graph_;
  std::vector<WeightView> weights_;
  std::vector<float*> open_;  // per weight
  enum class Contributed : uint8_t { kNo, kYes };
  std::vector<Contributed> contributed_;  // per weight
  std::vector<TensorView> inputs_, outputs_;
};

}  // namespace sluice
