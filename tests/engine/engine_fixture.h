// What engine tests share: a folder of their own, options that say only what a test is about.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/errors.h"
#include "engine/engine.h"
#include "engine/planner.h"
#include "tests/engine/toy_engine.h"
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

// Turns in which the chosen steps have a contribution of NaN.
inline Compute poisoned(const ModelSpec& model, const int64_t& step, std::vector<int64_t> bad_steps) {
  return [good = toy_compute(model, step), &step, bad_steps](Use& use) {
    good(use);
    if (use.pass() != Pass::kBackward || use.visit() != 2) return;
    if (std::find(bad_steps.begin(), bad_steps.end(), step) == bad_steps.end()) return;
    use.open_gradient(1)[0] = std::numeric_limits<float>::quiet_NaN();
  };
}

// A step whose turn `bad_turn`, the first being 0, throws.
inline void expect_step_to_throw(Engine& engine, const ModelSpec& model, int bad_turn) {
  int turn = 0;
  const int64_t number = engine.step() + 1;
  const Compute bad = [&, good = toy_compute(model, number)](Use& use) {
    if (turn++ == bad_turn) throw std::runtime_error("out of data");
    good(use);
  };
  EXPECT_THROW(engine.train_step(ReferenceOptions().learning_rate, bad), std::runtime_error);
}

}  // namespace sluice::testing
