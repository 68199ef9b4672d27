// Weights, boundary tensors and closed gradients between the device and their homes, closed gradients from there to
// their update, and records at home on the device between it and the store. Internal to engine/step*.cpp; build-time
// only.
//
// What comes from NVMe or goes there passes through rings in host memory, and so do gradients at home on the device on
// their way to an update there; until then they stay where they are, as tensors at home on the device do.
#pragma once
#include "engine/passing_tensors.h"
#include "engine/plan.h"
#include "engine/step_verbs.h"
#include "offload/byte_ring.h"

namespace sluice {

class Passage {
 public:
  // All must outlive it.
  Passage(const PlannedModel& planned, Verbs& verbs, UnitKind kind);

  // In host memory, from where they are uploaded again.
  WeightsInHost weights_from_home(int chunk, When when);
  // Of a chunk that the device updates. They come when a run begins, and where an update in the backward was wrong;
  // what commits write is a copy.
  void bring_records(int chunk);
  void copy_to_store(const RecordsOnDevice& records, When when);

  void bring(const TensorMove& tensor);
  void take_home(const TensorMove& tensor);
  bool read_ahead(const TensorMove& tensor);  // false: no room
  void write_tensors() { tensors_.write_waiting(); }
  // Closed gradients: home; home, and into host memory for an update in the backward; from home for a later one.
  void take_home(ClosedOnDevice gradient);
  ClosedInHost take_to_update(ClosedOnDevice gradient, When when);
  ClosedInHost gradient_from_home(int chunk, When when);

 private:
  const Plan& plan_;
  Verbs& verbs_;
  ByteRing staging_, gradients_;
  PassingTensors tensors_;
};

}  // namespace sluice
