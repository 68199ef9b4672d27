// What each step of a run is predicted to take, as it ran.
#pragma once
#include <optional>

#include "engine/engine.h"
#include "engine/predict.h"

namespace sluice {

// Of a step that runs again.
Prediction twice(Prediction once);

// Not thread-safe.
class StepPredictions {
 public:
  struct Kinds {
    std::optional<Prediction> deferred, early;  // of steps whose updates wait, and of those with some in the backward
    UpdateMode mode = UpdateMode::kAuto;
  };
  explicit StepPredictions(const Kinds& kinds) : kinds_(kinds) {}

  // For each step once, in their order. Nothing where none is known, and where a step had other work than one in the
  // middle of a run: early updates that were undone, in it or in the one before, updates of another time than that
  // one's, or none, since that one was skipped.
  std::optional<Prediction> next(const StepEnd& end);

 private:
  Kinds kinds_;
  std::optional<Speculated> before_;
  bool skipped_before_ = false;
};

// Of whichever this plan has; its speeds are known. Any thread.
StepPredictions::Kinds predicted_kinds(const ModelSpec& model, const Plan& plan);

}  // namespace sluice
