// What the executor asks of the engine while a unit runs.
#include "core/errors.h"
#include "engine/engine_impl.h"

namespace sluice {

bool Engine::Impl::due(const Hop& hop) {
  const bool update_pending = order.update == UpdateOrder::Update::kPending;
  const bool commit = order.commit == UpdateOrder::Commit::kDue;
  const bool ahead = prefetched == Flag::kYes;
  if (hop.verb == Verb::kUpdate) {
    if (update_pending) return true;
    const ChunkHomes& homes = plan.chunks[hop.index];
    const auto changed = [&](Group group) { return dirty[2 * hop.index + static_cast<int>(group)] == Flag::kYes; };
    if (commit && (changed(Group::kWeights) || changed(Group::kState))) return true;
    return unit_kind != UnitKind::kDrain && homes.weights == Home::kNvme;
  }
  switch (hop.when) {
    case When::kAlways:
      return true;
    case When::kPending:
      return update_pending;
    case When::kPendingNotPrefetched:
      return update_pending && !ahead;
    case When::kNotPrefetched:
      return !ahead;
    case When::kCommit:
      return commit;
    case When::kStaleOnDevice:
      return update_pending || kept_valid == Flag::kNo;
    case When::kCommitDirty: {
      Flag& changed = dirty[2 * hop.index + static_cast<int>(hop.group)];
      if (!commit || changed == Flag::kNo) return false;
      changed = Flag::kNo;  // the write that starts now takes it to the store
      return true;
    }
  }
  return true;
}

void Engine::Impl::start_update(int hop_number, const Hop&) { team->start(&update_task, this, hop_number); }

// On an update thread. Chunks are disjoint, and hops of one chunk are ordered by the program.
void Engine::Impl::update_task(void* self, int hop_number) {
  auto* impl = static_cast<Impl*>(self);
  std::exception_ptr error;
  try {
    const Hop& hop = impl->unit->program.hops()[hop_number];
    if (hop.verb == Verb::kVerify) {
      impl->update_pass->verify({static_cast<uint32_t>(hop.index), Group::kWeights}, impl->host.at(hop.host_offset));
    } else {
      impl->update_pass->run(impl->unit->updates[hop.operands], impl->order);
      if (impl->order.update == UpdateOrder::Update::kPending) {
        const ChunkHomes& homes = impl->plan.chunks[hop.index];
        if (homes.weights == Home::kHost) impl->dirty[2 * hop.index] = Flag::kYes;
        if (homes.state == Home::kHost) impl->dirty[2 * hop.index + 1] = Flag::kYes;
      }
    }
  } catch (...) {
    error = std::current_exception();
  }
  impl->executor->ended(hop_number, error);
}

}  // namespace sluice
