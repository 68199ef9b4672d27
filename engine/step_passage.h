// Boundary tensors and closed gradients between the device and their homes. Internal to engine/step*.cpp; build-time
// only.
//
// Those at home on NVMe pass through rings in host memory; those at home on the device stay where they are.
#pragma once
#include "engine/plan.h"
#include "engine/step_verbs.h"
#include "offload/byte_ring.h"

namespace sluice {

class Passage {
 public:
  // Both must outlive it.
  Passage(const Plan& plan, Verbs& verbs);

  void bring(const TensorMove& tensor);
  void take_home(const TensorMove& tensor);
  void take_home(int visit, ClosedOnDevice gradient);

 private:
  const Plan& plan_;
  Verbs& verbs_;
  ByteRing gradients_, tensors_;
};

}  // namespace sluice
