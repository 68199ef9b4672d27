// What engine tests share: a folder of their own, options that say only what a test is about.
#pragma once
#include <gtest/gtest.h>

#include "core/errors.h"
#include "engine/engine.h"
#include "engine/planner.h"
#include "tests/engine/reference_trainer.h"
#include "tests/engine/toy_model.h"
#include "tests/fakes/temp_folder.h"

namespace sluice::testing {

// Everything a toy run needs; generous budgets.
inline EngineOptions engine_options(const TempFolder& folder, const ReferenceOptions& reference) {
  EngineOptions options;
  options.plan = {.precision = reference.precision,
                  .moments = reference.moments,
                  .gradient_dtype = reference.gradient_dtype,
                  .device_bytes = 4 * kMiB,
                  .host_bytes = 8 * kMiB,
                  .workspace_bytes = 4096,
                  .micro_batches = reference.micro_batches,
                  .chunk_elements = 256};
  options.open = OpenMode::kOverwrite;
  options.store.folder = folder.path();
  options.adam = reference.adam;
  options.groups = reference.groups;
  options.max_norm = reference.max_norm;
  options.loss_scale = reference.loss_scale;
  options.update_threads = 2;
  return options;
}

// Weights and state at home in one tier. On the device that takes weights that are kept there.
inline void put_records(PlanOptions& plan, HomeKind home) {
  plan.placement.state = {{home, 1}};
  plan.placement.weights = {{home == HomeKind::kDevice ? HomeKind::kNvmeAndDevice : home, 1}};
}

}  // namespace sluice::testing
