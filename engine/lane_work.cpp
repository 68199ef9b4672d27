// What the executor asks of the engine while a unit runs.
#include <fmt/format.h>

#include <utility>

#include "core/errors.h"
#include "engine/engine_impl.h"

namespace sluice {

// Is this chunk's update of the last step still to be applied?
bool Engine::Impl::update_pending(int chunk) const {
  if (running.order.update == UpdateOrder::Update::kNone) return false;
  return between.speculated != Speculated::kRight || !plan.speculated(chunk);
}

// Are weights kept on the device not there, or about to change?
bool Engine::Impl::stale_on_device() const {
  return running.order.update == UpdateOrder::Update::kPending || between.kept_valid == Flag::kNo;
}

// Does a visit of this unit take the weights that pass through this chunk's update? A drain has no visits, and weights
// kept on the device are there already.
bool Engine::Impl::serves_a_visit(int chunk) const {
  const bool kept = plan.kept_offset[plan.geometry.chunks()[chunk].partition] >= 0;
  return running.kind != UnitKind::kDrain && (!kept || stale_on_device());
}

bool Engine::Impl::verifies_for_a_visit(int chunk) const {
  return plan.chunks[chunk].weights == Home::kNvme && serves_a_visit(chunk);
}

// Since it was last written to the store, at home in memory.
bool Engine::Impl::has_changed(int chunk) const {
  return changed_of(chunk, Group::kWeights) == Flag::kYes || changed_of(chunk, Group::kState) == Flag::kYes;
}

bool Engine::Impl::due(const Hop& hop) const {
  const bool commit = running.order.commit == UpdateOrder::Commit::kDue;
  if (running.rehearsed) {
    const bool commits = hop.when == When::kCommit || hop.when == When::kCommitDirty;
    return belongs_to(*running.rehearsed, hop.lane()) && (commit || !commits) && due_in_steady_step(running.kind, hop);
  }
  if (hop.prefetched == Prefetched::kYes && between.prefetched == update_half(running.kind)) return false;
  switch (hop.when) {
    case When::kAlways:
      return true;
    case When::kPending:
      return update_pending(hop.chunk);
    case When::kPendingOrSummed:
      return update_pending(hop.chunk) || (commit && has_changed(hop.chunk)) || verifies_for_a_visit(hop.chunk);
    case When::kSpeculating:
      return aborted == Flag::kNo;
    case When::kMispredicted:
      return between.speculated == Speculated::kWrong;
    case When::kCommit:
      return commit;
    case When::kNotOnDevice:
      return between.on_device == Flag::kNo || (between.speculated == Speculated::kWrong && plan.speculated(hop.chunk));
    case When::kStaleOnDevice:
      return stale_on_device();
    case When::kCommitDirty:
      return commit && changed_of(hop.chunk, hop.group) == Flag::kYes;
  }
  return true;
}

// The write takes to the store what has changed at home in memory.
void Engine::Impl::starting(const Hop& hop) {
  if (hop.verb != Verb::kSwapOut || hop.when != When::kCommitDirty) return;
  changed_of(hop.chunk, hop.group) = Flag::kNo;
}

// A chunk's hops serve every visit of its partition: they are named by the first.
TraceLabel Engine::Impl::hop_label(const Hop& hop) const {
  int visit = hop.visit;
  if (visit < 0 && hop.chunk >= 0) visit = uses.first_visit[plan.geometry.chunks()[hop.chunk].partition];
  std::string name = Program::describe(hop, visit >= 0 ? model.visits[visit].name : "");
  if (hop.verb != Verb::kCompute) return {std::move(name), Program::category(hop), running.step};
  const std::string_view pass = sluice::name_of(running.unit->turns[hop.operands].pass);
  return {fmt::format("{} {}", name, pass), pass, running.step};
}

void Engine::Impl::start_update(int hop_number, const Hop& hop) {
  const int group = hop.verb == Verb::kUpdate ? running.unit->updates[hop.operands].group : UpdateTeam::kAnyGroup;
  team->start({.run = &update_task, .context = this, .index = hop_number, .group = group});
}

// On an update thread. Chunks are disjoint, and hops of one chunk are ordered by the program.
void Engine::Impl::update_task(void* self, int hop_number) {
  auto* impl = static_cast<Impl*>(self);
  const Hop& hop = impl->running.unit->program.hops()[hop_number];
  std::exception_ptr error;
  try {
    if (hop.verb == Verb::kUpdate) {
      const UpdateOperands& operands = impl->running.unit->updates[hop.operands];
      hop.when == When::kSpeculating ? impl->update_early(operands) : impl->update_in_turn(operands);
    } else if (hop.scratch_extent >= 0) {
      hop.verb == Verb::kSeal ? impl->seal_scratch(hop) : impl->verify_scratch(hop);
    } else {
      hop.verb == Verb::kSeal ? impl->seal_record(hop) : impl->verify_record(hop);
    }
  } catch (...) {
    error = std::current_exception();
  }
  impl->executor->ended(hop_number, std::move(error));
}

std::span<const std::byte> Engine::Impl::bytes_of(const Hop& hop) const {
  return {host.at(hop.host_offset), static_cast<size_t>(hop.bytes)};
}

void Engine::Impl::seal_record(const Hop& hop) const {
  update_pass->sum({static_cast<uint32_t>(hop.chunk), hop.group}, host.at(hop.host_offset), running.order.checksums);
}

void Engine::Impl::verify_record(const Hop& hop) const {
  update_pass->verify({static_cast<uint32_t>(hop.chunk), hop.group}, host.at(hop.host_offset), running.order.checksums);
}

void Engine::Impl::seal_scratch(const Hop& hop) const {
  store->set_scratch_checksum(hop.scratch_extent, scratch_sum(hop.scratch_extent, bytes_of(hop)));
}

// A boundary tensor that came back from its scratch extent. (A gradient is verified by its update.)
void Engine::Impl::verify_scratch(const Hop& hop) const {
  const int extent = hop.scratch_extent;
  const uint32_t found = scratch_sum(extent, bytes_of(hop));
  if (running.order.checksums == UpdateOrder::Checksums::kOnlyTaken || found == store->scratch_checksum(extent)) return;
  const int micro_batches = plan.options.micro_batches;
  throw store->scratch_corruption(
      extent, found,
      fmt::format("block {}, tensor {} of micro-batch {}", model.visits[hop.visit].name,
                  model.tensors[hop.tensor_number / micro_batches].name, hop.tensor_number % micro_batches));
}

void Engine::Impl::update_in_turn(const UpdateOperands& operands) {
  UpdateOrder mine = running.order;
  if (!update_pending(operands.chunk)) mine.update = UpdateOrder::Update::kNone;
  if (!serves_a_visit(operands.chunk)) mine.weights = UpdateOrder::Weights::kNotRead;
  update_pass->run(operands, mine);
  if (mine.update != UpdateOrder::Update::kNone) note_changed(operands.chunk);
}

// Of its records those at home in memory.
void Engine::Impl::note_changed(int chunk) {
  const ChunkHomes& homes = plan.chunks[chunk];
  if (homes.weights != Home::kNvme) changed_of(chunk, Group::kWeights) = Flag::kYes;
  if (homes.state != Home::kNvme) changed_of(chunk, Group::kState) = Flag::kYes;
}

// With a predicted scale a value may become non-finite that the true one keeps finite: that is a wrong prediction.
void Engine::Impl::update_early(const UpdateOperands& operands) {
  try {
    update_pass->run(operands, running.early);
  } catch (const NumericsError&) {
    std::lock_guard lock(early_mutex);
    if (!running.early_failure) running.early_failure = std::current_exception();
  }
}

}  // namespace sluice
