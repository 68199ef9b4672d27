// A toy model trained by the engine: the same turns as the reference's.
#pragma once
#include <cstdint>

#include "engine/engine.h"
#include "tests/engine/reference_trainer.h"

namespace sluice::testing {

// `step` says which data they see.
Compute toy_compute(const ModelSpec& model, const int64_t& step);
// Trains until `options.steps` steps have ended (fewer for a resumed engine); the record holds the steps run here.
RunRecord train_engine(Engine& engine, const ModelSpec& model, const ReferenceOptions& options);
ParameterSource toy_source();

}  // namespace sluice::testing
