#include "engine/predict.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/errors.h"
#include "engine/hop_costs.h"

namespace sluice {
namespace {

// Work of each lane: all of it, and of that what every micro-batch adds.
struct Work {
  LaneTimes all_ms{}, tensors_ms{};
};

Work work_of(const UnitProgram& unit, const UnitCosts& costs) {
  const std::vector<double> work_ms = costs.average_work_ms();
  Work work;
  for (size_t i = 0; i < work_ms.size(); ++i) {
    const Hop& hop = unit.program.hops()[i];
    const auto lane = static_cast<size_t>(hop.lane());
    work.all_ms[lane] += work_ms[i];
    if (of_a_micro_batch(hop)) work.tensors_ms[lane] += work_ms[i];
  }
  return work;
}

// Where compute's time, c a micro-batch, passes the others', f + a a micro-batch.
std::optional<double> critical_micro_batches(const GroupTimes& all, const GroupTimes& tensors, int micro_batches) {
  constexpr auto kComputeAt = static_cast<size_t>(LaneGroup::kCompute);
  const double each = tensors[kComputeAt] / micro_batches, fixed = all[kComputeAt] - tensors[kComputeAt];
  double critical = 0;
  for (size_t group = 0; group < all.size(); ++group) {
    if (group == kComputeAt) continue;
    const double added = each - tensors[group] / micro_batches;
    const double wanted = all[group] - tensors[group] - fixed;
    if (wanted <= 0 && added >= 0) continue;
    if (added <= 0) return std::nullopt;
    critical = std::max(critical, wanted / added);
  }
  return critical;
}

}  // namespace

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds) {
  return predict(model, plan, speeds, unclipped_kind(plan));
}

std::optional<double> clipped_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds) {
  const bool either = plan.options.update == UpdateMode::kAuto && plan.any_speculated();
  if (!either || !plan.options.clips) return std::nullopt;
  return predict(model, plan, speeds, UnitKind::kTrain).step_ms;
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind) {
  return predict(model, plan, speeds, BuiltUnit{kind, build_unit(model, plan, kind)});
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built) {
  const auto& [kind, unit] = built;
  SLUICE_CHECK(speeds.visits.size() == model.visits.size(), "a time for each visit");
  const UnitCosts costs(plan, speeds, unit, kind);
  const auto lanes = lane_models(speeds.machine);
  Prediction prediction;
  const double commits = 1.0 / plan.commit_interval;
  for (const auto& [which, share] : {std::pair(Commits::kYes, commits), std::pair(Commits::kNo, 1 - commits)}) {
    if (share <= 0) continue;
    const Simulation simulation =
        simulate(unit.program, {.costs = costs.of_step(which), .lanes = lanes, .cores = speeds.machine.cores});
    prediction.step_ms += share * simulation.total_ms;
    for (size_t lane = 0; lane < kLaneCount; ++lane) prediction.busy_ms[lane] += share * simulation.busy_ms[lane];
  }
  const Work work = work_of(unit, costs);
  prediction.alone_ms = group_times(work.all_ms, speeds.machine);
  prediction.binding = longest(prediction.alone_ms);
  prediction.critical_micro_batches = critical_micro_batches(
      prediction.alone_ms, group_times(work.tensors_ms, speeds.machine), plan.options.micro_batches);
  return prediction;
}

}  // namespace sluice
