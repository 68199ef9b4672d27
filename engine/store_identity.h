// What a store must agree with to be the one of a model and a plan.
#pragma once
#include "core/geometry.h"
#include "engine/model.h"
#include "engine/plan.h"
#include "swap/record_store.h"

namespace sluice {

StoreIdentity store_identity(const ModelSpec& model, const PlanOptions& plan, const Geometry& geometry);

}  // namespace sluice
