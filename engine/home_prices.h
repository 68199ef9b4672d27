// What homes cost: the work that each lane has with a partition's bytes, or with a tensor's, at each home they may
// have. Told from the programs of plans in which all bytes of a group have one home, so that nothing here knows what a
// hop is for. Such a plan has one chunk a partition and one micro-batch: work grows with bytes. Its rings are deep: where
// what a visit passes does not fit in one (engine/passing_tensors.h), tensors on NVMe cost more.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "engine/hop_costs.h"
#include "engine/plan.h"

namespace sluice {

// The homes that the planner chooses from, the nearest to the device first.
std::span<const HomeKind> homes_of(Group group);

struct HomePrices {
  // ms of an average step, by home (as homes_of has them), beyond what the last home takes. Of a partition's elements
  // for one group, all of them there; of a tensor for one micro-batch. State at home on the device: with the weights
  // and the gradient that lie beside it, which have no price of their own then.
  struct OfGroup {
    std::vector<std::vector<LaneTimes>> items;  // [partition or tensor][home]
  };
  OfGroup groups[kGroupCount];
  LaneTimes rest_ms{};  // of the whole step with everything at the last home of its group
  MachineSpeeds machine;
  const OfGroup& of(Group group) const { return groups[static_cast<size_t>(group)]; }
};

// Of a run that commits every so many steps; `options` know their speeds, the rest of them is taken as it is.
HomePrices price_homes(const ModelSpec& model, const PlanOptions& options, int commit_interval);

}  // namespace sluice
