// A toy model trained by the engine: the same turns as the reference's.
#pragma once
#include <cstdint>
#include <functional>

#include "engine/engine.h"
#include "tests/engine/reference_trainer.h"

namespace sluice::testing {

// Puts work into the order of the device's compute.
using Launch = std::function<void(std::function<void()>)>;
inline void run_at_once(const std::function<void()>& work) { work(); }
// `step` says which data turns see, as they are called for.
Compute toy_compute(const ModelSpec& model, const int64_t& step, const Launch& launch = run_at_once);
// Trains until `options.steps` steps have ended (fewer for a resumed engine); the record holds the steps run here.
RunRecord train_engine(Engine& engine, const ModelSpec& model, const ReferenceOptions& options,
                       const Launch& launch = run_at_once);
ParameterSource toy_source();

}  // namespace sluice::testing
