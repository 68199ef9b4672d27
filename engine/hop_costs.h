// What the hops of one unit cost on a machine: what a step in the middle of a run does, an update pending, the first
// reads done by the unit before, nothing clipped. Predictions simulate these costs; the choice of homes adds them up.
#pragma once
#include <array>
#include <vector>

#include "engine/lane_group.h"
#include "engine/machine.h"
#include "engine/plan.h"
#include "engine/simulate.h"
#include "engine/step.h"

namespace sluice {

enum class Commits : uint8_t { kNo, kYes };

// Views: all must outlive it. Any thread.
class UnitCosts {
 public:
  UnitCosts(const Plan& plan, const StepSpeeds& speeds, const UnitProgram& unit, UnitKind kind);

  // Of each hop, in a step that commits or, where not every step does, in one that does not.
  const std::vector<HopCost>& of_step(Commits commits) const { return of_step_[static_cast<size_t>(commits)]; }
  // The work of each hop in ms, of an average step: commits are spread over their interval, and what one waits for the
  // drives is work of the write lane, as nothing is written meanwhile (reads are, so this is the most that it costs).
  // For group_times(), which divides the update lane's by the cores that its threads have: that of a GPU's updates is
  // made up for it.
  std::vector<double> average_work_ms() const;

 private:
  HopCost of(const Hop& hop, Commits commits) const;
  HopCost transfer(const Hop& hop) const;
  HopCost by_thread(double work_ms, double cores) const;  // cores 0: a GPU's
  HopCost update(const Hop& hop, Commits commits) const;
  double update_ms(const Hop& hop, Commits commits) const;
  double moving_ms(int64_t elements) const;
  double sums_ms(int64_t elements, int64_t summed_bytes) const;
  double turn_ms(const Hop& hop) const;

  const Plan& plan_;
  const StepSpeeds& speeds_;
  const MachineSpeeds& machine_;
  const UnitProgram& unit_;
  UnitKind kind_;
  std::array<std::vector<HopCost>, 2> of_step_;  // by Commits
};

// Is there one more of this hop with each micro-batch?
bool of_a_micro_batch(const Hop& hop);

std::array<LaneModel, kLaneCount> lane_models(const MachineSpeeds& machine);

using LaneTimes = std::array<double, kLaneCount>;        // by Lane
using GroupTimes = std::array<double, kLaneGroupCount>;  // by LaneGroup

// The least time in which a resource can do its lanes' work: the largest of some weighted sums of it.
struct GroupForms {
  std::vector<LaneTimes> sums;  // weights, by Lane
  double of(const LaneTimes& work_ms) const;
};
std::array<GroupForms, kLaneGroupCount> group_forms(const MachineSpeeds& machine);
// Each resource's time for this work of its lanes.
GroupTimes group_times(const LaneTimes& work_ms, const MachineSpeeds& machine);
LaneGroup longest(const GroupTimes& times);  // of equals compute

}  // namespace sluice
