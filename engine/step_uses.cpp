#include <algorithm>

#include "engine/step.h"

namespace sluice {

ModelUses::ModelUses(const ModelSpec& model)
    : takers(model.tensors.size(), 0),
      last_taker(model.tensors.size(), -1),
      first_giver(model.tensors.size(), -1),
      last_giver(model.tensors.size(), -1),
      first_visit(model.partitions.size(), -1),
      last_visit(model.partitions.size(), -1),
      visits(model.partitions.size(), 0) {
  for (int v = 0; v < static_cast<int>(model.visits.size()); ++v) {
    for (int t : model.visits[v].takes) {
      ++takers[t];
      last_taker[t] = v;
    }
    for (int t : model.visits[v].gives) {
      if (first_giver[t] < 0) first_giver[t] = v;
      last_giver[t] = v;
    }
    for (int p : model.visits[v].partitions) {
      ++visits[p];
      last_visit[p] = v;
      if (first_visit[p] < 0) first_visit[p] = v;
    }
  }
}

std::vector<UnitKind> unit_kinds(const Plan& plan) {
  std::vector<UnitKind> kinds{UnitKind::kEvaluate, UnitKind::kDrain};
  const bool always = plan.options.update == UpdateMode::kSpeculative || plan.options.update == UpdateMode::kReplay;
  if (plan.any_speculated()) kinds.insert(kinds.end(), {UnitKind::kTrainSpeculative, UnitKind::kTrainSpeculativeAnew});
  if (!plan.any_speculated() || !always) kinds.push_back(UnitKind::kTrain);
  return kinds;
}

UnitKind unclipped_kind(const Plan& plan) {
  return plan.any_speculated() ? UnitKind::kTrainSpeculative : UnitKind::kTrain;
}

UpdateHalf update_half(UnitKind kind) {
  return kind == UnitKind::kTrainSpeculative ? UpdateHalf::kDeferred : UpdateHalf::kAll;
}

bool updates_early(UnitKind kind) {
  return kind == UnitKind::kTrainSpeculative || kind == UnitKind::kTrainSpeculativeAnew;
}

std::optional<UpdateHalf> half_prefetched(UnitKind kind) {
  if (updates_early(kind)) return UpdateHalf::kDeferred;
  if (kind == UnitKind::kTrain) return UpdateHalf::kAll;
  return std::nullopt;
}

bool due_in_steady_step(UnitKind kind, const Hop& hop) {
  if (hop.prefetched == Prefetched::kYes && half_prefetched(kind) == update_half(kind)) return false;
  return hop.when != When::kMispredicted && hop.when != When::kNotOnDevice;
}

void lay_out_boundary(const PlannedModel& planned, const ComputeOperands& turn, BoundaryLayout& layout) {
  const auto& [model, uses, plan] = planned;
  const VisitSpec& visit = model.visits[turn.visit];
  layout.bytes = 0;
  for (std::vector<int64_t>* list :
       {&layout.inputs, &layout.outputs, &layout.contributions, &layout.input_sums, &layout.output_sums}) {
    list->clear();
  }
  const auto take = [&](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(bytes, kDeviceAlignmentBytes);
    return at;
  };
  const auto place = [&](int tensor) { return take(model.tensors[tensor].bytes()); };
  const auto passes = [&](int tensor) { return plan.tensor(tensor, turn.micro_batch).home != Home::kDevice; };
  const auto sum = [&](int tensor) {
    const bool in_host = plan.tensor_open(tensor, turn.micro_batch).home == Home::kHost;
    return in_host ? take(model.tensors[tensor].elements * 4) : -1;
  };
  const bool backward = turn.pass == Pass::kBackward;
  for (int t : visit.takes) layout.inputs.push_back(passes(t) ? place(t) : -1);
  for (int t : visit.gives) {
    layout.outputs.push_back(passes(t) || (backward && uses.shared_tensor(t)) ? place(t) : -1);
  }
  for (int t : visit.takes) {  // others still read this tensor: a contribution must not overwrite it
    layout.contributions.push_back(backward && uses.shared_tensor(t) && !passes(t) ? place(t) : -1);
  }
  if (!backward) return;
  for (int t : visit.takes) layout.input_sums.push_back(sum(t));
  for (int t : visit.gives) layout.output_sums.push_back(sum(t));
}

int64_t UnitProgram::memory_bytes() const {
  return program.memory_bytes() +
         static_cast<int64_t>(updates.capacity() * sizeof(UpdateOperands) + turns.capacity() * sizeof(ComputeOperands) +
                              addresses.capacity() * sizeof(int64_t));
}

}  // namespace sluice
