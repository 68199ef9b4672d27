// One resource of a step alone: what the step would take if everything else took no time.
//
// The program is that of a step in the middle of training (an update pending, its first reads done by the unit before,
// a commit due where every step has one), in which the hops of other lanes have nothing to do: due() says so, and
// compute is abandoned where it is not the resource. Slots hold zeros or what was left there, so checksums are taken
// and not used, and what is written goes where nothing is (Executor::Writes::kRehearsed): the store keeps its content.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/errors.h"
#include "engine/engine_impl.h"

namespace sluice {

void Engine::Impl::order_of_middle_step() {
  between.prefetched = update_half(running.kind);
  if (updates_early(running.kind)) between.speculated = Speculated::kRight;
  groups.fill_steps({.learning_rate = 0, .t = 1, .scale = 0}, order_steps);  // changes nothing
  running.order = {.update = UpdateOrder::Update::kPending,
                   .commit = plan.commit_interval == 1 ? UpdateOrder::Commit::kDue : UpdateOrder::Commit::kNotDue,
                   .checksums = UpdateOrder::Checksums::kOnlyTaken,
                   .steps = order_steps};
  running.early = running.order;
  running.early.to = early_order(order_steps).to;
}

// Chunks share buffers, and their planes begin at different places: only zeros are numbers wherever they are read from,
// and with a scale and a rate of 0 they stay zeros. The device need not hold any numbers yet.
void Engine::Impl::clear_update_inputs() {
  std::byte* const zeros = host.at(plan.host_update.offset);
  const int64_t zero_bytes = plan.host_update.bytes;
  std::memset(zeros, 0, static_cast<size_t>(zero_bytes));
  if (plan.host_gradients.bytes > 0) {
    std::memset(host.at(plan.host_gradients.offset), 0, static_cast<size_t>(plan.host_gradients.bytes));
  }
  const auto clear_on_device = [&](int64_t at, int64_t bytes) {
    for (int64_t done = 0; done < bytes; done += zero_bytes) {
      device->copy_now(device->memory() + at + done, zeros, std::min(zero_bytes, bytes - done));
    }
  };
  if (plan.options.update == UpdateMode::kReplay) {  // gradients are taken from where they close
    clear_on_device(plan.device_open.offset, plan.device_open.bytes);
    for (const OpenSlot& sum : plan.open_slots) {
      if (sum.home == Home::kDevice) clear_on_device(sum.offset, sum.bytes());
    }
  }
  for (int c = 0; c < std::ssize(plan.chunks); ++c) {
    const ChunkHomes& homes = plan.chunks[c];
    const int64_t elements = plan.geometry.chunks()[c].elements;
    if (homes.updated_on_device()) {
      clear_on_device(homes.state_offset, plan.record_bytes(c, Group::kState));
      clear_on_device(plan.kept_weights_offset(c), plan.weights_bytes(elements));
      if (homes.gradient == Home::kDevice) clear_on_device(homes.gradient_offset, plan.gradient_bytes(elements));
    }
    // A residual makes a number only with the weight that it belongs to, which does not come.
    if (homes.state == Home::kHost && homes.weights == Home::kNvme) {
      std::memset(host.at(homes.state_offset), 0, static_cast<size_t>(plan.record_bytes(c, Group::kState)));
    }
    if (homes.gradient != Home::kHost || homes.gradient_offset < 0) continue;
    std::memset(host.at(homes.gradient_offset), 0, static_cast<size_t>(plan.gradient_bytes(elements)));
  }
}

// Whatever memory held is made-up now; the next step reads and uploads anew.
void Engine::Impl::end_replay() {
  between.kept_valid = between.on_device = Flag::kNo;
  between.prefetched.reset();
  between.speculated = Speculated::kNone;
}

void Engine::Impl::replay_compute(const Compute& compute) {
  try {
    for (const int32_t number : running.unit->program.lane(Lane::kCompute)) {
      const Hop& hop = running.unit->program.hops()[number];
      if (hop.verb != Verb::kCompute) continue;
      const ComputeOperands& next = running.unit->turns[hop.operands];
      Use turn = enter(next.visit, next.pass);
      compute(turn);
    }
    run_control_hops();
  } catch (...) {
    abort_in_handler();
    end_replay();
    throw;
  }
}

Replay Engine::Impl::replay(LaneGroup group, const Compute& compute) {
  const NearDevice::Stay staying(near);
  drain();
  choose(training_kind());
  guarded([&] {
    order_of_middle_step();
    if (group == LaneGroup::kCpu) clear_update_inputs();
  });
  running.under_way = Flag::kYes;
  running.rehearsed = group;
  const bool computes = group == LaneGroup::kCompute;
  executor->begin(running.unit->program, Executor::Writes::kRehearsed,
                  computes ? Executor::Calls::kOfCompute : Executor::Calls::kNone);
  if (computes) replay_compute(compute);
  return guarded([&] {
    const UnitTimes& times = finish_unit();
    running.under_way = Flag::kNo;
    end_replay();
    return Replay{.ms = static_cast<double>(times.elapsed_ns) / 1e6,
                  .lanes = sluice::lanes_of(times),
                  .updates_early = sluice::updates_early(running.kind)};
  });
}

}  // namespace sluice
