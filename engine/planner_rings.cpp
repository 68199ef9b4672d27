// The planner's rings: how deep they must be, and how deep they are where there is room.
#include <algorithm>

#include "core/bytes.h"
#include "engine/passing_tensors.h"
#include "engine/planner_impl.h"
#include "offload/executor.h"

namespace sluice {
namespace {

// How deep rings are where there is room.
constexpr int kWeightsBuffers = 2, kOpenBuffers = 2;
constexpr int kLittle = 12;         // one part in so many, or less
constexpr int kPassingBuffers = 4;  // of tensors between the device and NVMe
constexpr int kSomeThreads = 8;     // of updates, where no machine is known

// ... of tensors: what a visit passes stays until the next one has read it, and as much is on its way to the drive.
int64_t tensors_wanted(int64_t buffer, int64_t of_a_visit) {
  return std::max(kPassingBuffers * buffer, 2 * (of_a_visit + buffer));
}

}  // namespace

// One buffer of each device ring holds what the largest visit or turn passes through it.
void Planner::Impl::ring_needs(const Plan& plan, Needs& needs) const {
  BoundaryLayout layout;
  for (size_t v = 0; v < model_.visits.size(); ++v) {
    int64_t weights = 0, open = 0, staging = 0;
    for (int p : model_.visits[v].partitions) {
      if (plan.kept_offset[p] < 0) weights += kept_bytes(plan, p);
      if (plan.partition_open(p).home != Home::kDevice) open += plan.geometry.partitions()[p].elements * 4;
      const Partition& partition = plan.geometry.partitions()[p];
      for (const int c : partition.chunks()) {
        if (plan.chunks[c].weights == Home::kNvme) staging += plan.record_bytes(c, Group::kWeights);
      }
    }
    needs.weights_group = std::max(needs.weights_group, weights);
    needs.open_group = std::max(needs.open_group, open);
    needs.staging.ahead = std::max(needs.staging.ahead, staging);
    needs.boundary = std::max(needs.boundary, boundary_need(plan, static_cast<int>(v), layout));
  }
  if (needs.tensor_buffer > 0) needs.passing = passing_bytes(model_, plan);
}

// Micro-batches whose tensors have the homes of those of the one before pass as much. The layout is scratch.
int64_t Planner::Impl::boundary_need(const Plan& plan, int v, BoundaryLayout& layout) const {
  const VisitSpec& visit = model_.visits[v];
  const auto as_before = [&](int m) {
    const auto same = [&](int t) {
      return plan.tensor(t, m).home == plan.tensor(t, m - 1).home &&
             plan.tensor_open(t, m).home == plan.tensor_open(t, m - 1).home;
    };
    return std::ranges::all_of(visit.takes, same) && std::ranges::all_of(visit.gives, same);
  };
  int64_t most = 0;
  for (int m = 0; m < options_.micro_batches; ++m) {
    if (m > 0 && as_before(m)) continue;
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      lay_out_boundary({model_, uses_, plan}, {v, m, pass, 0}, layout);
      most = std::max(most, layout.bytes);
    }
  }
  return most;
}

// Rings deep enough to work ahead, as far as there is room: a second buffer, then more.
void Planner::Impl::size_rings(Plan& plan, const Needs& needs, Room& room) const {
  plan.device_boundary.bytes = needs.boundary;
  plan.device_weights.bytes = needs.weights_group;
  plan.device_open.bytes = needs.open_group;
  const auto deepen = [](Ring& ring, int64_t bytes, int64_t& left) {
    if (bytes <= 0 || bytes > left) return;
    ring.bytes += bytes;
    left -= bytes;
  };
  for (int buffers = 1; buffers < std::max({kBoundaryBuffers, kWeightsBuffers, kOpenBuffers}); ++buffers) {
    if (buffers < kBoundaryBuffers) deepen(plan.device_boundary, needs.boundary, room.device);
    if (buffers < kWeightsBuffers) deepen(plan.device_weights, needs.weights_group, room.device);
    if (buffers < kOpenBuffers) deepen(plan.device_open, needs.open_group, room.device);
  }

  plan.host_update.bytes = needs.update_buffer;
  plan.host_staging.bytes = needs.staging.buffer;
  plan.host_gradients.bytes = needs.gradient_buffer;
  plan.host_boundary.bytes = needs.tensor_buffer;
  deepen(plan.host_update, needs.update_buffer, room.host);
  deepen(plan.host_gradients, needs.gradient_buffer, room.host);
  if (needs.passing <= room.host / 2) deepen(plan.host_boundary, needs.passing - needs.tensor_buffer, room.host);
  if (needs.staging.buffer > 0) {
    const int64_t wanted = needs.staging.ahead - needs.staging.buffer;
    deepen(plan.host_staging, std::min(wanted, room.host / 4 / kPlaneAlignmentBytes * kPlaneAlignmentBytes), room.host);
  }
  const bool holds_a_visit = plan.host_boundary.bytes >= needs.passing;
  for (int buffers = 1; buffers < kPassingBuffers && !holds_a_visit; ++buffers) {
    deepen(plan.host_boundary, needs.tensor_buffer, room.host);
  }
  for (int buffers = 2; buffers < kWantedUpdateBuffers; ++buffers) {
    deepen(plan.host_update, needs.update_buffer, room.host);
    deepen(plan.host_gradients, needs.gradient_buffer, room.host);
  }
  if (!holds_a_visit) return;
  const int64_t more = tensors_wanted(needs.tensor_buffer, needs.passing) - plan.host_boundary.bytes;
  deepen(plan.host_boundary, std::min(more, room.host / 4 / kPlaneAlignmentBytes * kPlaneAlignmentBytes), room.host);
}

// The ring of tensors as deep as is wanted, or at least for what a visit passes, where that takes little of what homes
// may have: prices know no other.
void Planner::Impl::hold_passing(Plan& plan, const Needs& needs, Room& room) const {
  for (const int64_t bytes : {tensors_wanted(needs.tensor_buffer, needs.passing), needs.passing}) {
    const int64_t more = bytes - plan.host_boundary.bytes;
    if (more <= 0) return;
    if (more > room.host / kLittle) continue;
    plan.host_boundary.bytes += more;
    room.host -= more;
    return;
  }
}

// Rings no deeper than the homes that were found ask for.
void Planner::Impl::shrink_rings(Plan& plan, Room& room) const {
  const Needs now = needs(plan);
  const auto shrink = [](Ring& ring, int64_t wanted, int64_t& left) {
    if (ring.bytes <= wanted) return;
    left += ring.bytes - wanted;
    ring.bytes = wanted;
  };
  shrink(plan.device_boundary, kBoundaryBuffers * now.boundary, room.device);
  shrink(plan.device_weights, kWeightsBuffers * now.weights_group, room.device);
  shrink(plan.device_open, kOpenBuffers * now.open_group, room.device);
  shrink(plan.host_update, kWantedUpdateBuffers * now.update_buffer, room.host);
  shrink(plan.host_gradients, kWantedUpdateBuffers * now.gradient_buffer, room.host);
  shrink(plan.host_boundary, tensors_wanted(now.tensor_buffer, now.passing), room.host);
  shrink(plan.host_staging, now.staging.ahead, room.host);
}

// Gradients in host memory for as many updates as may be under way, and for no more than there are buffers for.
int64_t Planner::Impl::more_gradients(const Plan& plan, Room room) const {
  if (plan.host_gradients.bytes == 0) return 0;  // none pass
  const Needs now = needs(plan);
  const int threads = options_.speeds ? options_.speeds->machine.update_threads : kSomeThreads;
  const int64_t updates = kUpdateHopsPerThread * int64_t{threads};
  const int64_t buffers =
      (plan.host_update.bytes + plan.host_gradients.bytes + room.host) / (now.update_buffer + now.gradient_buffer);
  return std::clamp<int64_t>(std::min(updates, buffers) * now.gradient_buffer - plan.host_gradients.bytes, 0,
                             room.host);
}

// What is left is too little for another home; where some bytes have none in this tier, it lets lanes work further
// ahead.
void Planner::Impl::deepen_rings(Plan& plan, Room& room) const {
  const int64_t gradients = more_gradients(plan, room);
  plan.host_gradients.bytes += gradients;
  room.host -= gradients;
  const auto on_nvme = [](const ChunkHomes& homes) {
    return homes.weights == Home::kNvme || homes.state == Home::kNvme;
  };
  if (std::any_of(plan.chunks.begin(), plan.chunks.end(), on_nvme)) {
    plan.host_update.bytes += room.host / kPlaneAlignmentBytes * kPlaneAlignmentBytes;
  }
  if (plan.device_weights.bytes > 0) {
    const int64_t more = std::min(room.device, plan.device_weights.bytes);
    plan.device_weights.bytes += more / kDeviceAlignmentBytes * kDeviceAlignmentBytes;
  }
}

}  // namespace sluice
