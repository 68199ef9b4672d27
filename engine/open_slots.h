// Which open gradients share a place. Internal to engine/; build-time only.
#pragma once
#include "engine/plan.h"
#include "engine/step.h"

namespace sluice {

// Fills the plan's open slots, at home on the device, and who rests in which. A sum lives from the backward of the last
// visit that reads its tensor or partition to that of the first that gave or uses it; sums of one size that live apart
// share a slot. A pure function of the model and the micro-batches.
void assign_open_slots(const ModelSpec& model, const ModelUses& uses, Plan& plan);

}  // namespace sluice
