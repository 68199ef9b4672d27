// Turns of a visit with no engine behind them, on memory laid out as the engine lays it out: for measuring and timing
// visits. Values are what lies there. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "engine/open_gradients.h"
#include "engine/visit_turn.h"
#include "offload/device.h"

namespace sluice {

class StandInTurn : public VisitTurn {
 public:
  // Visit `visit` of a model, whose geometry is `geometry`.
  struct Of {
    const ModelSpec& model;  // outlives the turn, as the geometry does
    const Geometry& geometry;
    int visit = 0;
    DType weights = DType::kFp32;
  };
  // Of the visit's weights, of their open gradients and of its boundary tensors.
  static int64_t bytes(const Of& of);

  // As a turn of this pass begins. `graph`: the turn's graph(), which outlives it.
  virtual void begin(Pass pass, std::span<std::byte> graph);

  Pass pass() const override { return pass_; }
  std::span<const WeightView> weights() const override { return weights_; }
  std::span<const TensorView> inputs() const override { return inputs_; }
  std::span<const TensorView> outputs() const override { return outputs_; }
  // A tensor's gradient takes the tensor's own place.
  std::span<const TensorView> output_gradients() const override { return outputs_; }
  std::span<const TensorView> input_gradients() const override { return inputs_; }
  std::span<std::byte> graph() const override { return graph_; }
  std::span<float> open_gradient(int weight) override;
  double loss_scale() const override { return 1; }
  void report_loss(const double*) override {}

 protected:
  // In bytes(of) from `at` on.
  StandInTurn(const Of& of, std::byte* at);

 private:
  Pass pass_ = Pass::kForward;
  std::span<std::byte> graph_;
  std::vector<WeightView> weights_;
  std::vector<float*> open_;  // per weight
  std::vector<TensorView> inputs_, outputs_;
};

// Contributions go nowhere: what measuring the workspace needs.
class IdleTurn final : public StandInTurn {
 public:
  IdleTurn(const Of& of, std::byte* at) : StandInTurn(of, at) {}
  void contribute(int, const std::byte*, DType) override {}
  void contribute_part(int, int64_t, const GradientView&) override {}
};

// With the engine's arithmetic on contributions, on `device`'s memory: what timing a visit needs.
class PracticeTurn final : public StandInTurn {
 public:
  PracticeTurn(const Of& of, Device& device, std::byte* at);
  void begin(Pass pass, std::span<std::byte> graph) override;  // every weight's next contribution is its first
  void contribute(int weight, const std::byte* gradient, DType dtype) override;
  void contribute_part(int weight, int64_t first, const GradientView& part) override;
  std::span<float> open_gradient(int weight) override;

 private:
  Device& device_;
  OpenGradients open_gradients_;  // per weight
};

}  // namespace sluice
