// What a step will take: the very program that will run, simulated (engine/simulate.h) with a machine's speeds.
//
// A hop's work follows from its bytes and elements: transfers from the drives' speeds, copies from the links', an
// update from its elements and from the checksums that its records' homes ask for, a visit from its own time. It is
// what a step in the middle of a run takes: an update pending, the first reads done by the unit before, nothing
// clipped; commits are spread over their interval.
#pragma once
#include <array>
#include <optional>

#include "engine/lane_group.h"
#include "engine/machine.h"
#include "engine/plan.h"
#include "engine/step.h"

namespace sluice {

struct Prediction {
  double step_ms = 0;
  std::array<double, kLaneCount> busy_ms{};        // by Lane: at least one hop in flight, as steps measure it
  std::array<double, kLaneGroupCount> alone_ms{};  // by LaneGroup: what a step would take if all else took no time
  LaneGroup binding = LaneGroup::kCompute;         // the longest of those
  // Micro-batches per step above which compute is the longest; every other resource's work is taken to grow as its
  // hops on boundary tensors do. Nothing: compute is never the longest.
  std::optional<double> critical_micro_batches;
  // A step in which the clip engages: clipped_step_ms, if asked for.
  std::optional<double> clipped_ms;

  double alone(LaneGroup group) const { return alone_ms[static_cast<size_t>(group)]; }
  double busy(Lane lane) const { return busy_ms[static_cast<size_t>(lane)]; }
  Busiest busiest() const { return {binding, alone(binding), step_ms}; }
};

// Of one training kind (UnitKind::kTrain, kTrainSpeculative) that runs of this plan use. The machine must be valid.
Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind);
// The same of its unit, which is built already.
struct BuiltUnit {
  UnitKind kind = UnitKind::kTrain;
  const UnitProgram& unit;
};
Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built);
// Of unclipped_kind.
Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds);
// Its step_ms alone, for the cost of one simulation in place of five.
double predicted_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind);
double predicted_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built);
// Whether updates wait for the clip (UnitKind::kTrain) in steps that it engages in, and are early in others.
bool defers_clipped_steps(const Plan& plan);
// What such a step takes, or one that runs twice (replay); nothing where there are none.
std::optional<double> clipped_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds);

}  // namespace sluice
