// The turns of visits: where each finds its weights, boundary tensors and gradients on the device, and the compute hop
// with all that it reads and fills. Internal to engine/step*.cpp; build-time only.
//
// Tensors at home on the device are used where they are; the others pass through the boundary ring.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/step.h"
#include "engine/step_passage.h"
#include "engine/step_verbs.h"
#include "offload/byte_ring.h"

namespace sluice {

class Turns {
 public:
  // All must outlive it.
  struct Parts {
    const ModelSpec& model;
    const Plan& plan;
    const ModelUses& uses;
    Verbs& verbs;
    Passage& passage;
  };
  Turns(const Parts& parts, UnitKind kind);

  // A visit's turns for all micro-batches, on one fetch of its weights.
  void forward(int visit, const WeightsOnDevice& weights);
  void backward(int visit, const WeightsOnDevice& weights, const OpenOnDevice& open);

 private:
  // Where the tensors of one turn are on the device, and the sums of their gradients (-1: there is none).
  struct Boundary {
    std::vector<int64_t> inputs, outputs, contributions, input_sums, output_sums;
  };

  Turn turn(int visit, int micro_batch, Pass pass) const;
  Boundary boundary(const Turn& turn);
  void forward_turn(const Turn& turn, const WeightsOnDevice& weights);
  void backward_turn(const Turn& turn, const WeightsOnDevice& weights, const OpenOnDevice& open);
  void take_output_gradients(const Turn& turn, const Boundary& at, std::vector<Range>& reads,
                             std::vector<Range>& fills);
  void give_gradients_back(const Turn& turn, const Boundary& at);
  std::vector<Range> read_weights(int visit, const WeightsOnDevice& weights) const;
  void remember(const std::vector<int64_t>& addresses);

  const ModelSpec& model_;
  const Plan& plan_;
  const ModelUses& uses_;
  Verbs& verbs_;
  Passage& passage_;
  UnitKind kind_;
  ByteRing ring_;
};

}  // namespace sluice
