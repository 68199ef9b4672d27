// The turns of visits: where each finds its weights, boundary tensors and gradients on the device, and the compute hop
// with all that it reads and fills. Internal to engine/step*.cpp; build-time only.
//
// Tensors at home on the device are used where they are; the others pass through the boundary ring.
#pragma once
#include <cstdint>
#include <initializer_list>
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
    PlannedModel planned;
    Verbs& verbs;
    Passage& passage;
  };
  Turns(const Parts& parts, UnitKind kind);

  // Reads from NVMe what the visit takes, as far as there is room.
  void read_ahead(int visit);
  // A visit's turns for all micro-batches, on one fetch of its weights.
  void forward(int visit, const WeightsOnDevice& weights);
  void backward(int visit, const WeightsOnDevice& weights, const OpenOnDevice& open);

 private:
  ComputeOperands turn(int visit, int micro_batch, Pass pass) const;
  void begin(const ComputeOperands& turn, const WeightsOnDevice& weights);
  void bring_boundary(const ComputeOperands& turn);
  void forward_turn(const ComputeOperands& turn, const WeightsOnDevice& weights);
  void backward_turn(const ComputeOperands& turn, const WeightsOnDevice& weights, const OpenOnDevice& open);
  void take_output_gradients(const ComputeOperands& turn);
  void give_gradients_back(const ComputeOperands& turn);
  void remember(std::initializer_list<const std::vector<int64_t>*> addresses);

  const PlannedModel planned_;
  Verbs& verbs_;
  Passage& passage_;
  UnitKind kind_;
  ByteRing ring_;
  // Of the turn that is told; members, so that the next one uses their memory again.
  BoundaryLayout at_;  // offsets in the device arena, also of tensors that do not pass (-1: there is none)
  std::vector<Range> reads_, fills_;  // of its compute
};

}  // namespace sluice
