// What homes and rings leave of the budgets, given out in the fixed order: the device's part, then the host's.
#include <algorithm>

#include "engine/planner_impl.h"

namespace sluice {

// What is left goes to homes in the fixed order, then to rings. Those are no deeper than homes ask for until one moves,
// which takes room.
void Planner::Impl::fill(Plan& plan, Room room, StateToDevice state) const {
  Room sized = room;
  const auto shrink = [&] {
    if (room != sized) shrink_rings(plan, room);
    sized = room;
  };
  fill_device(plan, room);
  shrink();  // what has a home on the device passes through no ring: room for more of it
  fill_device(plan, room);
  fill_graphs(plan, room);
  shrink();  // the weights that came with them do not pass either
  fill_graphs(plan, room);
  if (state == StateToDevice::kWhereItFits) fill_state(plan, room);
  fill_host(plan, room);
  shrink();
  fill_host(plan, room);
  deepen_rings(plan, room);
}

void Planner::Impl::fill_device(Plan& plan, Room& room) const {
  const auto take = [&room](int64_t bytes) {
    if (bytes > room.device) return false;
    room.device -= bytes;
    return true;
  };
  if (free_to_choose(options_.placement.activations)) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const int64_t bytes = tensor_bytes(tensor_of(i));
      Home& home = plan.tensors[i].home;
      if (home == Home::kDevice || !take(bytes)) continue;
      if (home == Home::kHost) room.host += bytes;
      home = Home::kDevice;
    }
  }
  if (free_to_choose(options_.placement.weights)) {
    for (const VisitSpec& visit : model_.visits) {
      for (int p : visit.partitions) {
        if (plan.kept_offset[p] < 0 && take(kept_bytes(plan, p))) plan.kept_offset[p] = 0;
      }
    }
  }
}

// Where the visits are timed it must be worth it, too. A graph refers to its visit's inputs where they lay in the
// forward: they must still lie there. A sink has no forward of its own.
bool Planner::Impl::may_keep_graph(const Plan& plan, int v) const {
  const VisitSpec& visit = model_.visits[v];
  if (options_.graph_bytes[v] <= 0 || visit.gives.empty()) return false;
  if (options_.speeds) {
    const VisitTime& time = options_.speeds->visits[v];
    if (time.keeping_forward_ms + time.kept_backward_ms > time.forward_ms + time.backward_ms) return false;
  }
  const auto stays = [&](int tensor) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      if (plan.tensor(tensor, m).home != Home::kDevice) return false;
    }
    return true;
  };
  return std::all_of(visit.takes.begin(), visit.takes.end(), stays);
}

// A graph refers to its visit's weights, too: where they are not kept for themselves, they are kept with it, whatever
// home they have. Offset 0 marks "kept" until offsets are assigned.
void Planner::Impl::fill_graphs(Plan& plan, Room& room) const {
  if (options_.graph_bytes.empty()) return;
  for (int visit = 0; visit < static_cast<int>(model_.visits.size()); ++visit) {
    if (plan.keeps_graph(visit) || !may_keep_graph(plan, visit)) continue;
    int64_t bytes = options_.micro_batches * plan.graph_bytes(visit);
    std::vector<int64_t*> weights;
    for (const int p : model_.visits[visit].partitions) {
      if (plan.kept_offset[p] >= 0) continue;
      weights.push_back(&plan.kept_offset[p]);
      bytes += kept_bytes(plan, p);
    }
    if (bytes > room.device) continue;
    plan.graphs[visit] = 0;
    for (int64_t* const offset : weights) *offset = 0;
    room.device -= bytes;
  }
}

// What the user says of one group goes for all of a chunk.
bool Planner::Impl::may_update_on_device() const {
  const Placement& wish = options_.placement;
  return free_to_choose(wish.state) && free_to_choose(wish.weights) && free_to_choose(wish.gradient);
}

// Of weights that are kept. Their records pass through the host's staging ring as they come and at commits; what leaves
// host memory makes room for it.
void Planner::Impl::fill_state(Plan& plan, Room& room) const {
  if (!may_update_on_device()) return;
  std::vector<int> found;
  Room left = room;
  Staging staging;
  for (const int c : plan.update_order) {
    const ChunkHomes& homes = plan.chunks[c];
    if (homes.updated_on_device() || plan.kept_offset[plan.geometry.chunks()[c].partition] < 0) continue;
    const int64_t state = plan.record_bytes(c, Group::kState), weights = plan.record_bytes(c, Group::kWeights);
    const int64_t gradient = gradient_home_bytes(plan, c);
    const int64_t taken = state + (homes.gradient == Home::kDevice ? 0 : gradient);
    if (taken > left.device) continue;
    left.device -= taken;
    left.host += (homes.state == Home::kHost ? state : 0) + (homes.weights == Home::kHost ? weights : 0) +
                 (homes.gradient == Home::kHost ? gradient : 0);
    staging.pass(state, weights);
    found.push_back(c);
  }
  const auto beyond = [&](int64_t wanted) { return std::max<int64_t>(0, wanted - plan.host_staging.bytes); };
  const int64_t more = beyond(staging.ahead) <= left.host ? beyond(staging.ahead) : beyond(staging.buffer);
  if (found.empty() || more > left.host) return;
  plan.host_staging.bytes += more;
  left.host -= more;
  room = left;
  for (const int c : found) update_on_device(plan, c);
}

// Chunks in the order in which host memory is for their state; they come in the order of their updates.
std::vector<int> Planner::Impl::for_state_in_host(const Plan& plan, std::vector<int> chunks) {
  if (plan.host_state == HostStateOrder::kNeededFirst) return chunks;
  std::vector<bool> read_ahead(plan.chunks.size(), false);
  int64_t bytes = 0;
  for (const int c : plan.update_order) {
    if (plan.chunks[c].updated_on_device()) continue;
    bytes += plan.record_bytes(c, Group::kState);
    if (bytes > plan.host_update.bytes) break;
    read_ahead[c] = true;
  }
  std::ranges::stable_partition(chunks, [&](int c) { return !read_ahead[c]; });
  return chunks;
}

void Planner::Impl::fill_host(Plan& plan, Room& room) const {
  const auto move = [&](Home& home, int64_t bytes) {
    if (home != Home::kNvme || bytes > room.host) return;
    home = Home::kHost;
    room.host -= bytes;
  };
  if (free_to_choose(options_.placement.activations)) {
    for (size_t i = plan.tensors.size(); i-- > 0;) move(plan.tensors[i].home, tensor_bytes(tensor_of(i)));
  }
  if (free_to_choose(options_.placement.gradient)) {
    for (int c : plan.update_order) move(plan.chunks[c].gradient, gradient_home_bytes(plan, c));
  }
  if (free_to_choose(options_.placement.weights)) {
    for (int c : plan.update_order) move(plan.chunks[c].weights, plan.record_bytes(c, Group::kWeights));
  }
  if (free_to_choose(options_.placement.state)) {
    for (int c : for_state_in_host(plan, plan.update_order)) {
      move(plan.chunks[c].state, plan.record_bytes(c, Group::kState));
    }
  }
}

}  // namespace sluice
