// What a step would take with other resources, and what would help most. Pure; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/plan.h"
#include "engine/predict.h"

namespace sluice {

// What can be bought beside a model, and how much of the batch one step takes.
struct Resources {
  int64_t device_bytes = 0, host_bytes = 0;
  int drives = 1;
  int micro_batches = 1;
};
Resources resources_of(const PlanOptions& options);
// Drives are taken to be like those that are there: where speeds are known, they grow with the number of drives.
PlanOptions with_resources(const PlanOptions& options, const Resources& resources);

// One resource raised, the others as they are.
struct Offer {
  enum class Raised : uint8_t { kHostMemory, kDeviceMemory, kDrives, kTokens } raised = Raised::kHostMemory;
  Resources resources;
  std::optional<double> step_ms;  // nothing: the budgets cannot hold it
  double micro_batches_per_s = 0;
};
// Twice the memory of a tier, one more drive, twice the micro-batches a step: the most micro-batches a second first.
// `plan` was made of these options, whose speeds are known. Chunks stay as they are: a store's are fixed.
std::vector<Offer> what_would_help(const ModelSpec& model, const PlanOptions& options, const Plan& plan);

// Of a plan that was made of these options, whose speeds are known, with the micro-batches a step above which compute
// binds in plans for as many: the more there are, the less memory their tensors leave to other homes. Chunks stay as
// they are. Nothing: with none that the budgets hold. Where it is more than is tried, or less than there are, it is
// what follows from the homes of the last plan.
Prediction predict_with_critical_batch(const ModelSpec& model, const PlanOptions& options, const Plan& plan);

}  // namespace sluice
