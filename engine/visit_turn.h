// A visit's turn for one micro-batch, as a model sees it: the engine's (Use, engine.h), or one that stands in for it to
// measure, time or test a visit.
#pragma once
#include <cstddef>
#include <span>

#include "core/dtype.h"
#include "core/geometry.h"
#include "engine/step.h"
#include "offload/device.h"

namespace sluice {

// One parameter on the device while a visit runs.
struct WeightView {
  const Parameter* parameter = nullptr;
  std::byte* address = nullptr;  // contiguous, of the precision's weights dtype; read only
  DType dtype = DType::kFp32;
};
// A boundary tensor of one micro-batch on the device; 256-byte aligned.
struct TensorView {
  std::byte* address = nullptr;
  int64_t elements = 0;
  DType dtype = DType::kFp32;
};

// While a turn lasts, the addresses it names are valid.
//   kForward:  read weights, inputs; fill outputs.
//   kBackward: read weights, inputs, output_gradients; fill input_gradients (an input gradient may have the address of
//              its input: write it last); contribute gradients of weights. A sink visit starts from its loss.
//   kEvaluate: as kForward; a sink may compute a loss or hand out logits.
class VisitTurn {
 public:
  virtual ~VisitTurn() = default;

  virtual Pass pass() const = 0;
  virtual std::span<const WeightView> weights() const = 0;  // partitions in the visit's order, parameters as declared
  virtual std::span<const TensorView> inputs() const = 0;   // in the order of takes
  virtual std::span<const TensorView> outputs() const = 0;  // in the order of gives
  virtual std::span<const TensorView> output_gradients() const = 0;  // kBackward only
  virtual std::span<const TensorView> input_gradients() const = 0;   // kBackward only
  // Where the plan has room for it. kForward: memory in which to keep what this turn's backward would compute again.
  // kBackward: the same memory, as its forward left it; weights and inputs have not moved or changed since then.
  // Empty: the backward computes it again. Has as many bytes as PlanOptions::graph_bytes say for the visit.
  virtual std::span<std::byte> graph() const = 0;

  // Adds a gradient to weight i's open gradient (fp32, in arrival order). May be called several times a turn (tiles of
  // tokens), or never: no gradient.
  virtual void contribute(int weight, const std::byte* gradient, DType dtype) = 0;
  // The same for the weight's elements from `first` on, as many as the part has.
  virtual void contribute_part(int weight, int64_t first, const GradientView& part) = 0;
  // The open gradient itself, zero where nothing has been contributed, for gradients that touch few elements: on the
  // device, in the order of its compute.
  virtual std::span<float> open_gradient(int weight) = 0;
  // What a sink multiplies its loss with before the backward (1 but for fp16): gradients stay in that domain until the
  // update.
  virtual double loss_scale() const = 0;
  // The loss of this micro-batch, from a sink, without that factor; the step's loss is the mean over micro-batches. The
  // number lies on the device and is read in the order of its compute: what is called for later may overwrite it.
  virtual void report_loss(const double* loss) = 0;
};

}  // namespace sluice
