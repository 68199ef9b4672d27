#include "engine/step_turns.h"

namespace sluice {

Turns::Turns(const Parts& parts, UnitKind kind)
    : model_(parts.model),
      plan_(parts.plan),
      uses_(parts.uses),
      verbs_(parts.verbs),
      passage_(parts.passage),
      kind_(kind),
      ring_(plan_.device_boundary.offset, plan_.device_boundary.bytes) {}

void Turns::remember(const std::vector<int64_t>& addresses) {
  verbs_.unit.addresses.insert(verbs_.unit.addresses.end(), addresses.begin(), addresses.end());
}

// An evaluation has no backward to keep a graph for.
Turn Turns::turn(int visit, int micro_batch, Pass pass) const {
  Turn turn{visit, micro_batch, pass, static_cast<int32_t>(verbs_.unit.addresses.size())};
  if (kind_ != UnitKind::kEvaluate && plan_.keeps_graph(visit)) {
    turn.graph = plan_.graphs[visit] + micro_batch * plan_.graph_bytes(visit);
  }
  return turn;
}

std::vector<Range> Turns::read_weights(int visit, const WeightsOnDevice& weights) const {
  std::vector<Range> reads;
  const auto& partitions = model_.visits[visit].partitions;
  for (size_t i = 0; i < partitions.size(); ++i) {
    reads.push_back(verbs_.weights_on_device(partitions[i], weights.at[i]));
  }
  return reads;
}

// Where a turn's tensors are: at home on the device, or passing through the boundary ring. Brings its inputs.
Turns::Boundary Turns::boundary(const Turn& turn) {
  const VisitSpec& visit = model_.visits[turn.visit];
  const int m = turn.micro_batch;
  const BoundaryLayout layout = boundary_layout(model_, uses_, plan_, turn);
  const int64_t base = layout.bytes > 0 ? ring_.take(layout.bytes) : 0;
  const auto place = [&](int64_t passing, int64_t home) { return passing >= 0 ? base + passing : home; };
  Boundary at;
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    const int t = visit.takes[i];
    at.inputs.push_back(place(layout.inputs[i], plan_.tensor(t, m).offset));
    at.contributions.push_back(place(layout.contributions[i], at.inputs.back()));
    passage_.bring({turn.visit, t, m, at.inputs.back(), Content::kTensor});
  }
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    at.outputs.push_back(place(layout.outputs[i], plan_.tensor(visit.gives[i], m).offset));
  }
  if (turn.pass != Pass::kBackward) return at;
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    at.input_sums.push_back(place(layout.input_sums[i], plan_.tensor_open(visit.takes[i], m).offset));
  }
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    at.output_sums.push_back(place(layout.output_sums[i], plan_.tensor_open(visit.gives[i], m).offset));
  }
  return at;
}

void Turns::forward_turn(const Turn& turn, const WeightsOnDevice& weights) {
  const VisitSpec& visit = model_.visits[turn.visit];
  const Boundary at = boundary(turn);
  const auto tensor = [&](int t, int64_t where) { return TensorMove{turn.visit, t, turn.micro_batch, where}; };
  std::vector<Range> reads = read_weights(turn.visit, weights), fills;
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    reads.push_back(verbs_.tensor_on_device(tensor(visit.takes[i], at.inputs[i])));
  }
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    const TensorMove output = tensor(visit.gives[i], at.outputs[i]);
    fills.push_back(verbs_.tensor_on_device(output));
    if (uses_.first_giver[output.tensor] == turn.visit) continue;  // else it rewrites what is there
    passage_.bring(output);
    reads.push_back(fills.back());
  }
  if (turn.graph >= 0) fills.push_back(verbs_.graph_on_device(turn));
  remember(weights.at);
  remember(at.inputs);
  remember(at.outputs);
  verbs_.compute(turn, reads, fills);
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    passage_.take_home(tensor(visit.gives[i], at.outputs[i]));
  }
}

void Turns::forward(int visit, const WeightsOnDevice& weights) {
  for (int m = 0; m < plan_.options.micro_batches; ++m) forward_turn(turn(visit, m, Pass::kForward), weights);
}

// A sum of contributions is rounded to the gradient as the turn begins.
void Turns::take_output_gradients(const Turn& turn, const Boundary& at, std::vector<Range>& reads,
                                  std::vector<Range>& fills) {
  const VisitSpec& visit = model_.visits[turn.visit];
  const int m = turn.micro_batch;
  for (size_t i = 0; i < visit.gives.size(); ++i) {
    const int t = visit.gives[i];
    const TensorMove gradient{turn.visit, t, m, at.outputs[i], Content::kTensorGradient};
    if (uses_.shared_tensor(t)) {
      const TensorMove sum{turn.visit, t, m, at.output_sums[i], Content::kOpen};
      passage_.bring(sum);
      reads.push_back(verbs_.tensor_on_device(sum));
      fills.push_back(verbs_.tensor_on_device(gradient));
    } else {
      passage_.bring(gradient);
      reads.push_back(verbs_.tensor_on_device(gradient));
    }
  }
}

// The block is recomputed from its checkpoint, unless its forward kept the graph, and back-propagated. A tensor's
// gradient takes the tensor's own place, unless several visits read it: then it has an open gradient of its own,
// rounded once as its giver's turn begins.
void Turns::backward_turn(const Turn& turn, const WeightsOnDevice& weights, const OpenOnDevice& open) {
  const VisitSpec& visit = model_.visits[turn.visit];
  const int m = turn.micro_batch;
  const Boundary at = boundary(turn);
  std::vector<Range> reads = read_weights(turn.visit, weights), fills;
  take_output_gradients(turn, at, reads, fills);
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    const int t = visit.takes[i];
    reads.push_back(verbs_.tensor_on_device({turn.visit, t, m, at.inputs[i], Content::kTensor}));
    fills.push_back(verbs_.tensor_on_device({turn.visit, t, m, at.contributions[i], Content::kTensorGradient}));
    if (!uses_.shared_tensor(t)) continue;
    const TensorMove sum{turn.visit, t, m, at.input_sums[i], Content::kOpen};
    fills.push_back(verbs_.tensor_on_device(sum));
    if (uses_.last_taker[t] == turn.visit) continue;  // the first contribution begins it
    passage_.bring(sum);
    reads.push_back(fills.back());
  }
  for (size_t i = 0; i < visit.partitions.size(); ++i) {
    fills.push_back(verbs_.open_on_device(visit.partitions[i], open.at[i]));
  }
  if (turn.graph >= 0) reads.push_back(verbs_.graph_on_device(turn));
  remember(weights.at);
  remember(at.inputs);
  remember(at.outputs);
  remember(at.contributions);
  remember(open.at);
  remember(at.input_sums);
  remember(at.output_sums);
  verbs_.compute(turn, reads, fills);
  give_gradients_back(turn, at);
}

void Turns::give_gradients_back(const Turn& turn, const Boundary& at) {
  const auto& takes = model_.visits[turn.visit].takes;
  for (size_t i = 0; i < takes.size(); ++i) {
    const int t = takes[i], m = turn.micro_batch;
    passage_.take_home({turn.visit, t, m, at.input_sums[i], Content::kOpen});
    if (!uses_.shared_tensor(t)) passage_.take_home({turn.visit, t, m, at.contributions[i], Content::kTensorGradient});
  }
}

void Turns::backward(int visit, const WeightsOnDevice& weights, const OpenOnDevice& open) {
  for (int m = 0; m < plan_.options.micro_batches; ++m) backward_turn(turn(visit, m, Pass::kBackward), weights, open);
}

}  // namespace sluice
