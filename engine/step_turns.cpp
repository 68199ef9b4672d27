#include "engine/step_turns.h"

#include <cstdint>

#include "core/errors.h"

namespace sluice {

Turns::Turns(const Parts& parts, UnitKind kind)
    : planned_(parts.planned),
      verbs_(parts.verbs),
      passage_(parts.passage),
      kind_(kind),
      ring_(planned_.plan.device_boundary.offset, planned_.plan.device_boundary.bytes) {}

std::string_view name_of(Pass pass) {
  return pass == Pass::kForward ? "forward" : pass == Pass::kBackward ? "backward" : "evaluation";
}

// In the order in which they are remembered.
TurnAddresses addresses_of(const ModelSpec& model, const UnitProgram& unit, const ComputeOperands& turn) {
  const VisitSpec& visit = model.visits[turn.visit];
  size_t first = static_cast<size_t>(turn.first);
  const auto next = [&](size_t count) {
    first += count;
    return std::span(unit.addresses).subspan(first - count, count);
  };
  TurnAddresses at{.weights = next(visit.partitions.size()),
                   .inputs = next(visit.takes.size()),
                   .outputs = next(visit.gives.size())};
  if (turn.pass != Pass::kBackward) return at;
  at.input_gradients = next(visit.takes.size());
  at.open = next(visit.partitions.size());
  at.input_sums = next(visit.takes.size());
  at.output_sums = next(visit.gives.size());
  return at;
}

void Turns::remember(std::initializer_list<const std::vector<int64_t>*> addresses) {
  for (const std::vector<int64_t>* list : addresses) {
    verbs_.unit.addresses.insert(verbs_.unit.addresses.end(), list->begin(), list->end());
  }
}

// An evaluation has no backward to keep a graph for.
ComputeOperands Turns::turn(int visit, int micro_batch, Pass pass) const {
  const size_t first = verbs_.unit.addresses.size();
  SLUICE_CHECK(first <= INT32_MAX, "a unit's turns have more addresses than can be numbered");
  ComputeOperands turn{visit, micro_batch, pass, static_cast<int32_t>(first)};
  if (pass != Pass::kEvaluate && planned_.plan.keeps_graph(visit)) {
    turn.graph = planned_.plan.graphs[visit] + micro_batch * planned_.plan.graph_bytes(visit);
  }
  return turn;
}

void Turns::begin(const ComputeOperands& turn, const WeightsOnDevice& weights) {
  reads_.clear();
  fills_.clear();
  bring_boundary(turn);
  const auto& partitions = planned_.model.visits[turn.visit].partitions;
  for (size_t i = 0; i < partitions.size(); ++i) {
    reads_.push_back(verbs_.weights_on_device(partitions[i], weights.at[i]));
  }
}

// Where a turn's tensors are: at home on the device, or passing through the boundary ring. Brings its inputs.
void Turns::bring_boundary(const ComputeOperands& turn) {
  const VisitSpec& visit = planned_.model.visits[turn.visit];
  const int m = turn.micro_batch;
  lay_out_boundary(planned_, turn, at_);
  const int64_t base = at_.bytes > 0 ? ring_.take(at_.bytes) : 0;
  const auto place = [base](int64_t& at, int64_t home) { at = at >= 0 ? base + at : home; };
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    const int t = visit.takes[i];
    place(at_.inputs[i], planned_.plan.tensor(t, m).offset);
    place(at_.contributions[i], at_.inputs[i]);
    passage_.bring({turn.visit, t, m, at_.inputs[i], Content::kTensor});
  }
  for (size_t i = 0; i < visit.gives.size(); ++i) place(at_.outputs[i], planned_.plan.tensor(visit.gives[i], m).offset);
  if (turn.pass != Pass::kBackward) return;
  for (size_t i = 0; i < visit.takes.size(); ++i)
    place(at_.input_sums[i], planned_.plan.tensor_open(visit.takes[i], m).offset);
  for (size_t i = 0; i < visit.gives.size(); ++i)
    place(at_.output_sums[i], planned_.plan.tensor_open(visit.gives[i], m).offset);
}

void Turns::forward_turn(const ComputeOperands& turn, const WeightsOnDevice& weights) {
  const VisitSpec& visit = planned_.model.visits[turn.visit];
  begin(turn, weights);
  const auto tensor = [&](int t, int64_t where) { return TensorMove{turn.visit, t, turn.micro_batch, where}; };
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    reads_.push_back(verbs_.tensor_on_device(tensor(visit.takes[i], at_.inputs[i])));
  }
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    const TensorMove output = tensor(visit.gives[i], at_.outputs[i]);
    fills_.push_back(verbs_.tensor_on_device(output));
    if (planned_.uses.first_giver[output.tensor] == turn.visit) continue;  // else it rewrites what is there
    passage_.bring(output);
    reads_.push_back(fills_.back());
  }
  if (turn.graph >= 0) fills_.push_back(verbs_.graph_on_device(turn));
  remember({&weights.at, &at_.inputs, &at_.outputs});
  verbs_.compute(turn, reads_, fills_);
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    passage_.take_home(tensor(visit.gives[i], at_.outputs[i]));
  }
}

void Turns::forward(int visit, const WeightsOnDevice& weights) {
  passage_.write_tensors();
  const Pass pass = kind_ == UnitKind::kEvaluate ? Pass::kEvaluate : Pass::kForward;
  for (int m = 0; m < planned_.plan.options.micro_batches; ++m) forward_turn(turn(visit, m, pass), weights);
}

// A sum of contributions is rounded to the gradient as the turn begins.
void Turns::take_output_gradients(const ComputeOperands& turn) {
  const VisitSpec& visit = planned_.model.visits[turn.visit];
  const int m = turn.micro_batch;
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    const int t = visit.gives[i];
    const TensorMove gradient{turn.visit, t, m, at_.outputs[i], Content::kTensorGradient};
    if (planned_.uses.shared_tensor(t)) {
      const TensorMove sum{turn.visit, t, m, at_.output_sums[i], Content::kOpen};
      passage_.bring(sum);
      reads_.push_back(verbs_.tensor_on_device(sum));
      fills_.push_back(verbs_.tensor_on_device(gradient));
    } else {
      passage_.bring(gradient);
      reads_.push_back(verbs_.tensor_on_device(gradient));
    }
  }
}

// The block is recomputed from its checkpoint, unless its forward kept the graph, and back-propagated. A tensor's
// gradient takes the tensor's own place, unless several visits read it: then it has an open gradient of its own,
// rounded once as its giver's turn begins.
void Turns::backward_turn(const ComputeOperands& turn, const WeightsOnDevice& weights, const OpenOnDevice& open) {
  const VisitSpec& visit = planned_.model.visits[turn.visit];
  const int m = turn.micro_batch;
  begin(turn, weights);
  take_output_gradients(turn);
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    const int t = visit.takes[i];
    reads_.push_back(verbs_.tensor_on_device({turn.visit, t, m, at_.inputs[i], Content::kTensor}));
    fills_.push_back(verbs_.tensor_on_device({turn.visit, t, m, at_.contributions[i], Content::kTensorGradient}));
    if (!planned_.uses.shared_tensor(t)) continue;
    const TensorMove sum{turn.visit, t, m, at_.input_sums[i], Content::kOpen};
    fills_.push_back(verbs_.tensor_on_device(sum));
    if (planned_.uses.last_taker[t] == turn.visit) continue;  // the first contribution begins it
    passage_.bring(sum);
    reads_.push_back(fills_.back());
  }
  for (size_t i = 0; i < visit.partitions.size(); ++i) {
    fills_.push_back(verbs_.open_on_device(visit.partitions[i], open.at[i]));
  }
  if (turn.graph >= 0) reads_.push_back(verbs_.graph_on_device(turn));
  remember({&weights.at, &at_.inputs, &at_.outputs, &at_.contributions, &open.at, &at_.input_sums, &at_.output_sums});
  verbs_.compute(turn, reads_, fills_);
  give_gradients_back(turn);
}

void Turns::give_gradients_back(const ComputeOperands& turn) {
  const auto& takes = planned_.model.visits[turn.visit].takes;
  for (size_t i = 0; i < takes.size(); ++i) {
    const int t = takes[i], m = turn.micro_batch;
    passage_.take_home({turn.visit, t, m, at_.input_sums[i], Content::kOpen});
    if (!planned_.uses.shared_tensor(t))
      passage_.take_home({turn.visit, t, m, at_.contributions[i], Content::kTensorGradient});
  }
}

void Turns::read_ahead(int visit) {
  for (int m = 0; m < planned_.plan.options.micro_batches; ++m) {
    for (const int t : planned_.model.visits[visit].takes) {
      if (!passage_.read_ahead({visit, t, m})) return;
    }
  }
}

void Turns::backward(int visit, const WeightsOnDevice& weights, const OpenOnDevice& open) {
  passage_.write_tensors();
  for (int m = 0; m < planned_.plan.options.micro_batches; ++m)
    backward_turn(turn(visit, m, Pass::kBackward), weights, open);
}

}  // namespace sluice
