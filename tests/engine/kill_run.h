// The run that tests kill: what parent and child must agree on.
#pragma once
#include <string>

#include "core/bytes.h"
#include "tests/engine/toy_engine.h"

namespace sluice::testing {

inline ModelSpec kill_run_model(const std::string& update) {
  const Precision precision = update == "fp16" ? Precision::kFp16 : Precision::kBf16;
  return toy_model({.visits = 5, .shape = ToyShape::kBoth}, precision);
}
// "deferred" commits every second step and clips every one. "speculative" updates in the backward and clips some.
// "fp16" too, and its loss scale rises until steps overflow. "device" is "deferred" with state on the device too,
// "device_early" is "speculative" with it.
inline ReferenceOptions kill_run_reference(const std::string& update) {
  ReferenceOptions reference{.micro_batches = 2, .steps = 6, .max_norm = 0.05};
  if (update == "fp16") {
    reference.precision = Precision::kFp16;
    reference.gradient_dtype = DType::kFp16;
    reference.steps = 10;
    reference.loss_scale = {.kind = LossScaleOptions::Kind::kDynamic, .first = 0x1p16, .window = 2, .hysteresis = 1};
  }
  if (update == "speculative" || update == "device_early")
    reference.max_norm = median_norm(kill_run_model(update), reference);
  return reference;
}
inline EngineOptions kill_run_options(const std::string& folder, const std::string& update) {
  const ReferenceOptions reference = kill_run_reference(update);
  const bool deferred = update == "deferred" || update == "device";
  EngineOptions options;
  options.plan = {.precision = reference.precision,
                  .gradient_dtype = reference.gradient_dtype,
                  .device_bytes = 4 * kMiB,
                  .host_bytes = 8 * kMiB,
                  .workspace_bytes = 4096,
                  .micro_batches = 2,
                  .chunk_elements = 256,
                  .commit_interval = deferred ? 2 : 1,
                  .update = deferred ? UpdateMode::kDeferred : UpdateMode::kSpeculative};
  options.plan.placement.weights = {{HomeKind::kNvme, 1}};
  options.plan.placement.state = {{HomeKind::kHost, 0.3}, {HomeKind::kNvme, 0.7}};
  options.plan.placement.gradient = {{HomeKind::kNvme, 0.6}, {HomeKind::kHost, 0.4}};
  options.plan.placement.activations = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
  if (update == "device" || update == "device_early") {
    options.plan.placement.weights = {{HomeKind::kNvmeAndDevice, 1}};
    options.plan.placement.state = {{HomeKind::kHost, 0.3}, {HomeKind::kDevice, 0.4}, {HomeKind::kNvme, 0.3}};
    options.plan.placement.gradient = {};
  }
  options.store.folder = folder;
  options.max_norm = reference.max_norm;
  options.loss_scale = reference.loss_scale;
  options.update_threads = 2;
  return options;
}

}  // namespace sluice::testing
