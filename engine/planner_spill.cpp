// The planner's way out where memory is too small: what gets a home further away than it starts with.
#include <algorithm>
#include <numeric>

#include "engine/planner_impl.h"

namespace sluice {

// Sums that several visits contribute to start on the device; what does not fit there goes to host memory, the largest
// first.
Planner::Impl::Needs Planner::Impl::spill_to_host(Plan& plan, Budgets budgets) const {
  std::vector<size_t> order(plan.open_slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return plan.open_slots[a].elements > plan.open_slots[b].elements; });
  Needs least = needs(plan);
  for (size_t slot : order) {
    if (room_beside(least, budgets).device >= 0) break;
    plan.open_slots[slot].home = Home::kHost;
    least = needs(plan);
  }
  return least;
}

// Gradients and activations start in host memory; what does not fit there goes to the device, and to NVMe what that has
// no room for. A gradient moves over NVMe twice in a step, and so does an activation, but compute waits for it: it goes
// last. To NVMe go first the gradients that the next forward needs last, and the activations that rest longest between
// forward and backward.
Planner::Impl::Needs Planner::Impl::spill(Plan& plan, Budgets budgets) const {
  const Needs least = spill_to_host(plan, budgets);
  Room room = room_beside(least, budgets);
  if (room.host >= 0) return least;
  spill_to_device(plan, room);
  if (room.host < 0) spill_to_nvme(gradients_in_host(plan, needs(plan).gradient_buffer), room);
  if (room.host < 0) spill_to_nvme(activations_in_host(plan), room);
  return needs(plan);
}

void Planner::Impl::spill_to_device(Plan& plan, Room& room) const {
  if (free_to_choose(options_.placement.activations)) {
    for (size_t i = 0; i < plan.tensors.size() && room.host < 0; ++i) {
      const int64_t bytes = tensor_bytes(tensor_of(i));
      if (plan.tensors[i].home != Home::kHost || bytes > room.device) continue;
      plan.tensors[i].home = Home::kDevice;
      room.host += bytes;
      room.device -= bytes;
    }
  }
  if (!free_to_choose(options_.placement.gradient) || options_.update == UpdateMode::kReplay) return;
  int64_t buffer = 0;  // that a gradient at home on the device passes through on its way to its update
  for (size_t c = 0; c < plan.chunks.size() && room.host < 0; ++c) {
    const int64_t bytes = gradient_home_bytes(plan, static_cast<int>(c));
    if (plan.chunks[c].gradient != Home::kHost || bytes > room.device) continue;
    plan.chunks[c].gradient = Home::kDevice;
    const int64_t larger = std::max(buffer, plan.gradient_block_bytes(static_cast<int>(c)));
    room.host += bytes - (larger - buffer);
    buffer = larger;
    room.device -= bytes;
  }
}

// `buffer_bytes`: what the ring has already for those on the device.
std::vector<Planner::Impl::InHost> Planner::Impl::gradients_in_host(Plan& plan, int64_t buffer_bytes) const {
  std::vector<InHost> list;
  if (!free_to_choose(options_.placement.gradient)) return list;
  for (auto c = plan.update_order.rbegin(); c != plan.update_order.rend(); ++c) {
    Home& home = plan.chunks[*c].gradient;
    const int64_t more = std::max<int64_t>(0, plan.gradient_block_bytes(*c) - buffer_bytes);
    if (home == Home::kHost) list.push_back({&home, gradient_home_bytes(plan, *c), more});
  }
  return list;
}

std::vector<Planner::Impl::InHost> Planner::Impl::activations_in_host(Plan& plan) const {
  std::vector<InHost> list;
  if (!free_to_choose(options_.placement.activations)) return list;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int tensor = tensor_of(i);
    Home& home = plan.tensors[i].home;
    if (home == Home::kHost) list.push_back({&home, tensor_bytes(tensor), tensor_block_bytes(tensor)});
  }
  return list;
}

// In the order of the list. The buffers that they then pass through are counted once, and the gain must be more.
void Planner::Impl::spill_to_nvme(const std::vector<InHost>& list, Room& room) {
  int64_t in_host = 0, buffers = 0;
  for (const InHost& each : list) {
    in_host += each.bytes;
    buffers = std::max(buffers, each.buffer_bytes);
  }
  if (in_host <= buffers) return;
  room.host -= buffers;
  for (const InHost& each : list) {
    if (room.host >= 0) return;
    *each.home = Home::kNvme;
    room.host += each.bytes;
  }
}

}  // namespace sluice
