#include "engine/predict.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/errors.h"
#include "engine/hop_costs.h"

namespace sluice {
namespace {

// An average step in virtual time: one that commits and one that does not, each for its share of the steps.
class AverageStep {
 public:
  AverageStep(const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built)
      : program_(built.unit.program),
        machine_(speeds.machine),
        costs_(plan, speeds, built.unit, built.kind),
        committing_(1.0 / plan.commit_interval) {}

  const UnitCosts& costs() const { return costs_; }
  // `add` takes the share and a Simulation.
  template <typename Add>
  void simulate_each(std::optional<LaneGroup> alone, Add add) const {
    if (committing_ < 1) add(1 - committing_, simulation(Commits::kNo, alone));
    add(committing_, simulation(Commits::kYes, alone));
  }
  double total_ms(std::optional<LaneGroup> alone) const {
    double sum = 0;
    simulate_each(alone, [&](double share, const Simulation& of) { sum += share * of.total_ms; });
    return sum;
  }

 private:
  // With one resource alone, hops of the others have nothing to do: as Engine::replay has it.
  Simulation simulation(Commits commits, std::optional<LaneGroup> alone) const {
    if (!alone) return simulation(costs_.of_step(commits));
    std::vector<HopCost> costs = costs_.of_step(commits);
    for (size_t i = 0; i < costs.size(); ++i) {
      if (!belongs_to(*alone, program_.hops()[i].lane())) costs[i] = {.due = Due::kNo};
    }
    return simulation(costs);
  }
  Simulation simulation(std::span<const HopCost> costs) const {
    return simulate(program_, {.costs = costs, .lanes = lane_models(machine_), .cores = machine_.cores});
  }

  const Program& program_;
  const MachineSpeeds& machine_;
  const UnitCosts costs_;
  const double committing_;  // of the steps
};

// Of each resource, what all micro-batches add to its time: one visit is computed after the other, so of compute also
// what passes between them.
GroupTimes added_by_micro_batches(const UnitProgram& unit, const UnitCosts& costs, const MachineSpeeds& machine) {
  const std::vector<double> work_ms = costs.average_work_ms();
  const std::vector<HopCost>& of_step = costs.of_step(Commits::kYes);
  LaneTimes added_ms{};
  for (size_t i = 0; i < work_ms.size(); ++i) {
    const Hop& hop = unit.program.hops()[i];
    if (!of_a_micro_batch(hop)) continue;
    added_ms[static_cast<size_t>(hop.lane())] += work_ms[i];
    if (hop.verb == Verb::kCompute) added_ms[static_cast<size_t>(hop.lane())] += of_step[i].latency_ms;
  }
  return group_times(added_ms, machine);
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

double predicted_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind) {
  return predicted_step_ms(model, plan, speeds, BuiltUnit{kind, build_unit(model, plan, kind)});
}

double predicted_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built) {
  SLUICE_CHECK(speeds.visits.size() == model.visits.size(), "a time for each visit");
  return AverageStep(plan, speeds, built).total_ms(std::nullopt);
}

bool defers_clipped_steps(const Plan& plan) {
  return plan.options.update == UpdateMode::kAuto && plan.options.clips && plan.any_speculated();
}

std::optional<double> clipped_step_ms(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds) {
  if (plan.options.clips && plan.options.update == UpdateMode::kReplay) {
    return 2 * predicted_step_ms(model, plan, speeds, unclipped_kind(plan));
  }
  if (!defers_clipped_steps(plan)) return std::nullopt;
  return predicted_step_ms(model, plan, speeds, UnitKind::kTrain);
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, UnitKind kind) {
  return predict(model, plan, speeds, BuiltUnit{kind, build_unit(model, plan, kind)});
}

Prediction predict(const ModelSpec& model, const Plan& plan, const StepSpeeds& speeds, const BuiltUnit& built) {
  SLUICE_CHECK(speeds.visits.size() == model.visits.size(), "a time for each visit");
  const AverageStep step(plan, speeds, built);
  Prediction prediction;
  step.simulate_each(std::nullopt, [&](double share, const Simulation& of) {
    prediction.step_ms += share * of.total_ms;
    for (size_t lane = 0; lane < kLaneCount; ++lane) prediction.busy_ms[lane] += share * of.busy_ms[lane];
  });
  for (size_t group = 0; group < kLaneGroupCount; ++group) {
    // No more than with the others: a list's hops can be done sooner where others stand between them.
    prediction.alone_ms[group] = std::min(step.total_ms(static_cast<LaneGroup>(group)), prediction.step_ms);
  }
  prediction.binding = longest(prediction.alone_ms);
  prediction.critical_micro_batches =
      critical_micro_batches(prediction.alone_ms, added_by_micro_batches(built.unit, step.costs(), speeds.machine),
                             plan.options.micro_batches);
  return prediction;
}

}  // namespace sluice
