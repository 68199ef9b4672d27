// The run that tests kill: what parent and child must agree on.
#pragma once
#include <string>

#include "core/bytes.h"
#include "tests/engine/reference_trainer.h"

namespace sluice::testing {

inline ModelSpec kill_run_model() { return toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16); }
// "deferred" commits every second step and clips every one. "speculative" updates in the backward and clips some.
inline ReferenceOptions kill_run_reference(const std::string& update) {
  ReferenceOptions reference{.micro_batches = 2, .steps = 6, .max_norm = 0.05};
  if (update == "speculative") reference.max_norm = median_norm(kill_run_model(), reference);
  return reference;
}
inline EngineOptions kill_run_options(const std::string& folder, const std::string& update) {
  EngineOptions options;
  options.plan = {.device_bytes = 4 * kMiB,
                  .host_bytes = 8 * kMiB,
                  .workspace_bytes = 4096,
                  .micro_batches = 2,
                  .chunk_elements = 256,
                  .commit_interval = update == "deferred" ? 2 : 1,
                  .update = update == "deferred" ? UpdateMode::kDeferred : UpdateMode::kSpeculative};
  options.plan.placement.weights = {{HomeKind::kNvme, 1}};
  options.plan.placement.state = {{HomeKind::kHost, 0.3}, {HomeKind::kNvme, 0.7}};
  options.store.folder = folder;
  options.max_norm = kill_run_reference(update).max_norm;
  options.update_threads = 2;
  return options;
}

}  // namespace sluice::testing
