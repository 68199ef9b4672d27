#include "app/step_predictions.h"

#include <utility>

namespace sluice {

Prediction twice(Prediction once) {
  once.step_ms *= 2;
  for (double& ms : once.busy_ms) ms *= 2;
  for (double& ms : once.alone_ms) ms *= 2;
  return once;
}

std::optional<Prediction> StepPredictions::next(const StepEnd& end) {
  const bool ran_again = kinds_.mode == UpdateMode::kReplay && end.speculated == Speculated::kWrong && !end.skipped;
  const Speculated ended = ran_again ? Speculated::kRight : end.speculated;  // with the scale known
  const Speculated before = std::exchange(before_, ended).value_or(ended);
  const bool nothing_to_update = std::exchange(skipped_before_, end.skipped);
  if (nothing_to_update || ended != before || ended == Speculated::kWrong) return std::nullopt;
  if (ended == Speculated::kNone) return kinds_.deferred;
  return ran_again && kinds_.early ? twice(*kinds_.early) : kinds_.early;
}

StepPredictions::Kinds predicted_kinds(const ModelSpec& model, const Plan& plan) {
  StepPredictions::Kinds kinds{.deferred = {}, .early = {}, .mode = plan.options.update};
  for (const UnitKind kind : unit_kinds(plan)) {
    if (kind == UnitKind::kTrain) kinds.deferred = predict(model, plan, *plan.options.speeds, kind);
    if (kind == UnitKind::kTrainSpeculative) kinds.early = predict(model, plan, *plan.options.speeds, kind);
  }
  return kinds;
}

}  // namespace sluice
