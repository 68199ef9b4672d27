// The plainest trainer there can be: everything in memory, one loop, the scalar Adam, the norm written out as
// ARCHITECTURE.md states it. What the engine must equal to the bit, wherever its bytes live.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cpu_adam/adam.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {

struct StepRecord {
  double loss = 0, grad_norm = 0, loss_scale = 1;
  bool skipped = false;
  explicit StepRecord(const StepEnd& end)
      : loss(end.loss), grad_norm(end.grad_norm), loss_scale(end.loss_scale), skipped(end.skipped) {}
  StepRecord() = default;
  bool operator==(const StepRecord& other) const;  // not-a-numbers are alike
};
struct RunRecord {
  std::vector<StepRecord> steps;
  uint32_t weights_crc32c = 0, state_crc32c = 0;
  bool operator==(const RunRecord&) const = default;
};

struct ReferenceOptions {
  Precision precision = Precision::kBf16;
  DType gradient_dtype = DType::kBf16;
  DType moments = DType::kFp32;
  int micro_batches = 1;
  int steps = 3;
  double learning_rate = 1e-2, max_norm = 0;
  AdamOptions adam;
  std::vector<ParameterGroup> groups;
  int groups_from = 1;  // the step whose update is the first that they have a say in
  LossScaleOptions loss_scale;
};
RunRecord train_reference(const ModelSpec& model, const ReferenceOptions& options);
// A max_norm that about half of this run's steps exceed.
double median_norm(const ModelSpec& model, ReferenceOptions options);

}  // namespace sluice::testing
