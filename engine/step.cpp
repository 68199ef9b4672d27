// One step, told in the order bytes move. build_unit tells its parts; these are their chains:
//
//   swap_in -> update -> swap_out           a chunk of step k, beside the forward of step k+1
//           -> upload -> compute            its fresh weights on the device, all micro-batches
//              update -> compute            ... where its state is at home on the device; on commit steps
//                     -> download -> seal -> swap_out
//   swap_in -> verify -> upload -> compute  weights again, for the backward
//   compute -> close -> download            gradients home: in host memory, or
//                    -> seal -> swap_out    ... in a scratch extent on NVMe, from where their update swaps them in
//                    -> update -> swap_out  some chunks at once, as if the clip did not engage (speculative)
//                    -> update              with rare commits: to another slot in host memory;
//                       seal -> swap_out        on commit steps, beside the next forward
//            close -> update -> download  ... where state is at home on the device
//                    -> seal -> swap_out
//   swap_in -> verify                       an early update of the step before was wrong: the committed records again
//           -> verify -> upload             records at home on the device, as a run begins or where they are undone
//   compute -> download -> compute          boundary tensors (activations): by way of host memory, or
//                    -> seal -> swap_out    ... a scratch extent on NVMe, and
//   swap_in -> verify -> upload -> compute  back
//
// `gather` would stand between upload and compute, `reduce` between compute and close; with one rank they do nothing
// and are not written.
#include "engine/step.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include "core/errors.h"
#include "engine/step_passage.h"
#include "engine/step_turns.h"
#include "engine/step_verbs.h"
#include "offload/byte_ring.h"

namespace sluice {
namespace {

class Step {
 public:
  Step(const PlannedModel& planned, UnitKind kind);

  // The parts of a unit.
  void bring_records();              // to the device, those at home there
  WeightsOnDevice fetch(int visit);  // through their update where this unit has not updated them yet
  void forward(int visit, const WeightsOnDevice& weights) { turns_.forward(visit, weights); }
  OpenOnDevice backward(int visit, const WeightsOnDevice& weights);
  void close(int visit, const OpenOnDevice& open);
  void begin_backward();
  void read_ahead(int visit);
  void read_tensors_ahead(int visit) { turns_.read_ahead(visit); }
  void prefetch();
  void commit();
  void clip() { verbs_.clip(); }
  UnitProgram take();

 private:
  enum class Updated : uint8_t { kNo, kYes };
  // Of the update ring, for those of a chunk's records that are at home on NVMe.
  struct UpdateBuffer {
    int chunk = -1;
    int64_t state = -1, weights = -1;  // where they go; -1: at home elsewhere
    int64_t base = 0, bytes = 0;       // no bytes: neither is
  };
  // When they are read.
  struct Reads {
    When state = When::kAlways, weights = When::kAlways;
    Prefetched prefetched = Prefetched::kNo;
  };
  // What an update in this unit's backward will take.
  struct ReadAhead {
    UpdateBuffer buffer;
    std::optional<UnverifiedRecords> in_host;  // nothing: the device has them
  };

  UpdateBuffer take_buffer(int chunk);
  UnverifiedRecords read_records(const UpdateBuffer& buffer, const Reads& reads);
  void write_records(const UpdatedInHost& fresh, When when);
  bool owes_update(int chunk) const;
  WeightsInHost update_chunk(int chunk);
  void update_on_device(int chunk);
  bool updates_wait_for_buffers() const;
  void write_homes(size_t chunks, When when);
  bool is_on_device(int chunk) const { return plan_.chunks[chunk].updated_on_device(); }
  void undo(int chunk);
  void seal_home(int chunk);
  void speculate(int visit, ClosedOnDevice gradient);
  void speculate_in_host(ClosedOnDevice gradient, UnverifiedRecords records);
  When weights_due(int partition) const;
  void fetch_updated(int partition, int64_t at);
  void fetch_again(int partition, int64_t at);
  OpenOnDevice open(int visit);

  const ModelSpec& model_;
  const Plan& plan_;
  const ModelUses& uses_;
  UnitKind kind_;
  Verbs verbs_;
  Passage passage_;
  Turns turns_;
  const UpdateHalf half_;
  const bool homes_last_;
  ByteRing update_ring_;               // in host memory
  ByteRing weights_ring_, open_ring_;  // on the device
  std::vector<Updated> updated_;
  std::vector<int> speculative_;  // chunks that this unit updates in its backward, in the order in which they close
  size_t next_read_ = 0;          // of them
  std::deque<ReadAhead> read_;    // theirs, from when their state is read to their update
  std::vector<int> unwritten_;    // updated chunks whose records at home in memory have no write yet
  std::vector<int> uncopied_;     // ... those on the device whose copy has waited for the commit
};

}  // namespace

// A unit: [updates of step k beside forward k+1] [backward k+1, clip, first reads for the updates to come].
UnitProgram build_unit(const PlannedModel& planned, UnitKind kind) {
  Step step(planned, kind);
  const int last = static_cast<int>(planned.model.visits.size()) - 1;
  step.bring_records();
  for (int visit = 0; visit < last; ++visit) {
    const WeightsOnDevice weights = step.fetch(visit);
    if (kind != UnitKind::kDrain) step.forward(visit, weights);
  }
  WeightsOnDevice weights = step.fetch(last);
  step.commit();
  if (kind == UnitKind::kEvaluate) step.forward(last, weights);
  if (kind == UnitKind::kEvaluate || kind == UnitKind::kDrain) return step.take();
  step.begin_backward();
  // The last visit runs forward and backward in one. The next one's weights come before what closing asks the drive
  // for, which waits for this visit's compute.
  for (int visit = last; visit >= 0; --visit) {
    step.read_ahead(visit);
    const OpenOnDevice gradients = step.backward(visit, weights);
    if (visit > 0) {
      weights = step.fetch(visit - 1);
      step.read_tensors_ahead(visit - 1);
    }
    step.close(visit, gradients);
  }
  step.clip();
  step.prefetch();
  return step.take();
}

UnitProgram build_unit(const ModelSpec& model, const Plan& plan, UnitKind kind) {
  const ModelUses uses(model);
  return build_unit(PlannedModel{model, uses, plan}, kind);
}

namespace {

Step::Step(const PlannedModel& planned, UnitKind kind)
    : model_(planned.model),
      plan_(planned.plan),
      uses_(planned.uses),
      kind_(kind),
      verbs_(model_, plan_),
      passage_(planned, verbs_, kind),
      turns_({.planned = planned, .verbs = verbs_, .passage = passage_}, kind),
      half_(update_half(kind)),
      homes_last_(updates_wait_for_buffers()),
      update_ring_(plan_.host_update.offset, plan_.host_update.bytes),
      weights_ring_(plan_.device_weights.offset, plan_.device_weights.bytes),
      open_ring_(plan_.device_open.offset, plan_.device_open.bytes),
      updated_(model_.partitions.size(), Updated::kNo) {
  if (!updates_early(kind)) return;
  for (int visit = static_cast<int>(model_.visits.size()) - 1; visit >= 0; --visit) {
    for (int p : model_.visits[visit].partitions) {
      if (uses_.first_visit[p] != visit) continue;
      for (const int c : verbs_.partition(p).chunks()) {
        if (plan_.speculated(c)) speculative_.push_back(c);
      }
    }
  }
}

UnitProgram Step::take() {
  verbs_.unit.program.finish();
  return std::move(verbs_.unit);
}

// --- weights: through their update, or again from home --------------------------------------------------------------

Step::UpdateBuffer Step::take_buffer(int chunk) {
  const UpdateLayout layout = plan_.update_layout(chunk);
  const int64_t base = layout.bytes > 0 ? update_ring_.take(layout.bytes) : 0;
  return {.chunk = chunk,
          .state = layout.state >= 0 ? base + layout.state : -1,
          .weights = layout.weights >= 0 ? base + layout.weights : -1,
          .base = base,
          .bytes = layout.bytes};
}

// Of a chunk's two records those that are at home on NVMe.
UnverifiedRecords Step::read_records(const UpdateBuffer& buffer, const Reads& reads) {
  const auto [c, state_at, weights_at, base, bytes] = buffer;
  const auto state = [&]() -> UnverifiedState {
    if (state_at < 0) return verbs_.unverified_at_home<Group::kState>(c);
    return verbs_.swap_in(verbs_.in_store<Group::kState>(c, reads.prefetched), state_at, reads.state);
  };
  const auto weights = [&]() -> UnverifiedWeights {
    if (weights_at < 0) return verbs_.unverified_at_home<Group::kWeights>(c);
    return verbs_.swap_in(verbs_.in_store<Group::kWeights>(c, reads.prefetched), weights_at, reads.weights);
  };
  return {state(), weights()};  // in this order
}

void Step::write_records(const UpdatedInHost& fresh, When when) {
  const ChunkHomes& homes = plan_.chunks[fresh.state.chunk];
  if (homes.state == Home::kNvme) verbs_.swap_out(fresh.state, when);
  if (homes.weights == Home::kNvme) verbs_.swap_out(fresh.weights, when);
}

// When a visit's weights are brought to it: where they are kept on the device they are there while they do not change.
When Step::weights_due(int partition) const {
  return plan_.kept_offset[partition] >= 0 ? When::kStaleOnDevice : When::kAlways;
}

// The last step's update is this unit's to do, unless that step's backward did it.
bool Step::owes_update(int chunk) const {
  const bool by_unit_before = half_ == UpdateHalf::kDeferred && plan_.speculated(chunk);
  return !by_unit_before && plan_.chunks[chunk].gradient != Home::kNowhere;  // not kept: its backward has updated it
}

// Weights are read whether or not they change where the visit needs them; a drain serves no visit.
WeightsInHost Step::update_chunk(int chunk) {
  const bool serves = kind_ != UnitKind::kDrain;
  const Reads reads{.state = When::kPending,
                    .weights = serves ? weights_due(verbs_.chunk(chunk).partition) : When::kPending,
                    .prefetched = plan_.is_prefetched(half_, chunk) ? Prefetched::kYes : Prefetched::kNo};
  UnverifiedRecords records = read_records(take_buffer(chunk), reads);
  const ClosedInHost gradient = passage_.gradient_from_home(chunk, When::kPending);
  UpdatedInHost fresh = verbs_.update(std::move(records), gradient, When::kPendingOrSummed);
  write_records(fresh, When::kPending);
  unwritten_.push_back(chunk);
  return std::move(fresh.weights);
}

// Do updates wait for buffers of the ring? Then the drive has enough to do beside the forward, and writes of homes in
// memory, which only the commit needs, may come last. Not before early updates: those wait for the commit.
bool Step::updates_wait_for_buffers() const {
  if (updates_early(kind_)) return false;
  return std::any_of(plan_.update_order.begin(), plan_.update_order.end(),
                     [this](int c) { return plan_.update_layout(c).bytes > 0 && !plan_.is_prefetched(half_, c); });
}

// Writes, or copies to the store, what is at home in host memory or on the device of the chunks that have waited the
// longest. Called a partition late: a copy's seal runs on the update lane, waits for its own chunk's update and for a
// buffer, and would hold up the updates behind it. With rare commits copies wait for the commit: there is seldom one to
// take, and updates behind it would wait all the same.
void Step::write_homes(size_t chunks, When when) {
  for (const int c : std::span(unwritten_).first(chunks)) {
    const ChunkHomes& homes = plan_.chunks[c];
    if (is_on_device(c)) {
      if (plan_.commit_interval > 1) {
        uncopied_.push_back(c);
      } else {
        passage_.copy_to_store(verbs_.records_on_device(c), when);
      }
    }
    if (homes.state == Home::kHost) verbs_.swap_out(verbs_.at_home<Group::kState>(c), when);
    if (homes.weights == Home::kHost) verbs_.swap_out(verbs_.at_home<Group::kWeights>(c), when);
  }
  unwritten_.erase(unwritten_.begin(), unwritten_.begin() + static_cast<std::ptrdiff_t>(chunks));
}

// What is at home in memory goes to the store on commit steps alone, if it has changed.
void Step::commit() {
  write_homes(unwritten_.size(), When::kCommitDirty);
  for (const int c : uncopied_) passage_.copy_to_store(verbs_.records_on_device(c), When::kCommitDirty);
  verbs_.commit();
}

// Where state is at home on the device, so are weights and gradient: the update itself moves nothing.
void Step::update_on_device(int chunk) {
  const RecordsOnDevice records = verbs_.records_on_device(chunk);
  verbs_.update(records.state, records.weights, verbs_.closed_on_device(chunk), When::kPending);
  unwritten_.push_back(chunk);
}

// Records at home in host memory whose update in the backward was wrong come back from their committed slots, as those
// on the device do (Passage::bring_records); those at home on NVMe are simply read there, and those with two slots in
// memory have not moved.
void Step::undo(int chunk) {
  if (half_ == UpdateHalf::kDeferred || !plan_.speculated(chunk) || plan_.has_other_slot(chunk)) return;
  const ChunkHomes& homes = plan_.chunks[chunk];
  constexpr When kWhen = When::kMispredicted;
  if (homes.state == Home::kHost) {
    verbs_.verify(verbs_.swap_in(verbs_.in_store<Group::kState>(chunk), homes.state_offset, kWhen), kWhen);
  }
  if (homes.weights == Home::kHost) {
    verbs_.verify(verbs_.swap_in(verbs_.in_store<Group::kWeights>(chunk), homes.weights_offset, kWhen), kWhen);
  }
}

// Before any update: to verify is work for the same lane, and what is uploaded here would wait behind fresh weights,
// and so for their updates. In the middle of a run all of them are on the device already.
void Step::bring_records() {
  for (const int c : plan_.update_order) {
    if (is_on_device(c)) passage_.bring_records(c);
  }
}

// What the backward of the unit before has updated in host memory goes to the store as what this unit updates does.
void Step::seal_home(int chunk) {
  verbs_.seal(verbs_.unsealed_at_home<Group::kWeights>(chunk), When::kCommitDirty);
  verbs_.seal(verbs_.unsealed_at_home<Group::kState>(chunk), When::kCommitDirty);
  unwritten_.push_back(chunk);
}

// A unit's first fetch of a partition: through its update, where one is owed. A drain serves no visit.
void Step::fetch_updated(int p, int64_t at) {
  const bool serves = kind_ != UnitKind::kDrain;
  const When when = weights_due(p);
  for (const int c : verbs_.partition(p).chunks()) {
    undo(c);
    if (is_on_device(c)) {
      if (owes_update(c)) update_on_device(c);
    } else if (owes_update(c)) {
      const WeightsInHost fresh = update_chunk(c);
      if (serves) verbs_.upload(fresh, at, when);
    } else {
      if (plan_.has_other_slot(c)) seal_home(c);  // before the upload, or updates behind it would wait for that
      if (serves) verbs_.upload(passage_.weights_from_home(c, when), at, when);
    }
  }
}

// ... for another visit, or the backward: what is kept on the device is still there.
void Step::fetch_again(int p, int64_t at) {
  if (kind_ == UnitKind::kDrain || plan_.kept_offset[p] >= 0) return;
  for (const int c : verbs_.partition(p).chunks())
    verbs_.upload(passage_.weights_from_home(c, When::kAlways), at, When::kAlways);
}

WeightsOnDevice Step::fetch(int visit) {
  const auto& partitions = model_.visits[visit].partitions;
  int64_t bytes = 0;
  for (int p : partitions) {
    if (plan_.kept_offset[p] < 0) bytes += plan_.weights_bytes(verbs_.partition(p).elements);
  }
  int64_t next = bytes > 0 && kind_ != UnitKind::kDrain ? weights_ring_.take(bytes) : 0;
  WeightsOnDevice weights;
  for (int p : partitions) {
    const bool kept = plan_.kept_offset[p] >= 0;
    weights.at.push_back(kept ? plan_.kept_offset[p] : next);
    if (!kept) next += plan_.weights_bytes(verbs_.partition(p).elements);
    const size_t waiting = unwritten_.size();
    const Updated before = std::exchange(updated_[p], Updated::kYes);
    before == Updated::kNo ? fetch_updated(p, weights.at.back()) : fetch_again(p, weights.at.back());
    if (!homes_last_) write_homes(waiting, When::kCommitDirty);
  }
  return weights;
}

// This backward's own updates get buffers of which the last one ends where the update ring does: prefetch(), which
// begins where the ring does, then waits for the oldest of them and not for the last to be written.
void Step::begin_backward() {
  std::vector<int64_t> sizes;
  for (const int c : speculative_) sizes.push_back(plan_.update_layout(c).bytes);
  update_ring_.end_with(sizes);
}

// State for this backward's own updates: of this visit and of the next, as far as the update ring holds it. What later
// ones need would hold up the next visits' weights, which come first.
void Step::read_ahead(int visit) {
  for (; next_read_ < speculative_.size(); ++next_read_) {
    const int c = speculative_[next_read_];
    if (uses_.first_visit[verbs_.chunk(c).partition] < visit - 1) return;
    const int64_t bytes = plan_.update_layout(c).bytes, at = update_ring_.peek(bytes);
    const bool taken = std::any_of(read_.begin(), read_.end(), [&](const ReadAhead& read) {
      return at < read.buffer.base + read.buffer.bytes && read.buffer.base < at + bytes;
    });
    if (bytes > 0 && taken) return;
    read_.push_back({.buffer = take_buffer(c)});
    if (is_on_device(c)) continue;
    read_.back().in_host = read_records(read_.back().buffer, {When::kSpeculating, When::kSpeculating});
  }
}

// The update of a chunk whose gradient has just closed, with the scale of a step that is not clipped. The slots that it
// writes are those of the step under way; where the prediction was wrong, the committed ones are the undo copy. With
// rare commits it writes none, and goes to the other slot in host memory.
void Step::speculate(int visit, ClosedOnDevice closed) {
  ReadAhead read = std::move(read_.front());
  read_.pop_front();
  SLUICE_CHECK(read.buffer.chunk == closed.chunk, "gradients close in another order than their state was read in");
  if (!plan_.has_other_slot(closed.chunk)) unwritten_.push_back(closed.chunk);
  if (read.in_host) {
    speculate_in_host(std::move(closed), *std::move(read.in_host));
  } else {
    const RecordsOnDevice records = verbs_.records_on_device(closed.chunk);
    verbs_.update(records.state, records.weights, closed, When::kSpeculating);
  }
  read_ahead(visit);
}

void Step::speculate_in_host(ClosedOnDevice closed, UnverifiedRecords records) {
  constexpr When kWhen = When::kSpeculating;
  const ClosedInHost gradient = passage_.take_to_update(std::move(closed), kWhen);
  write_records(verbs_.update(std::move(records), gradient, kWhen), kWhen);
}

// Reads for the updates to come do not depend on gradients: they start while the backward still runs, into the buffers
// that the next unit's first updates will take.
void Step::prefetch() {
  update_ring_.rewind();
  const UpdateHalf next = *half_prefetched(kind_);
  for (const int c : plan_.update_order) {
    if (!plan_.is_prefetched(next, c)) continue;
    const UpdateBuffer buffer = take_buffer(c);
    if (buffer.bytes > 0) read_records(buffer, {});
  }
}

// --- gradients: open, then closed -----------------------------------------------------------------------------------

// This visit's open gradients: sums at home on the device have a place of their own, the others pass through the ring.
OpenOnDevice Step::open(int visit) {
  int64_t bytes = 0;
  const auto& partitions = model_.visits[visit].partitions;
  const auto passes = [&](int p) { return plan_.partition_open(p).home != Home::kDevice; };
  for (int p : partitions) {
    if (passes(p)) bytes += verbs_.partition(p).elements * 4;
  }
  int64_t next = bytes > 0 ? open_ring_.take(bytes) : 0;
  OpenOnDevice open;
  for (int p : partitions) {
    open.at.push_back(passes(p) ? next : plan_.partition_open(p).offset);
    if (passes(p)) next += verbs_.partition(p).elements * 4;
    const bool begun = uses_.last_visit[p] != visit;
    if (begun && plan_.partition_open(p).home == Home::kHost) verbs_.upload_open(visit, p, open.at.back());
  }
  return open;
}

void Step::close(int visit, const OpenOnDevice& open) {
  const auto& partitions = model_.visits[visit].partitions;
  for (size_t i = 0; i < partitions.size(); ++i) {
    if (uses_.first_visit[partitions[i]] != visit) {  // an earlier visit contributes later
      if (plan_.partition_open(partitions[i]).home == Home::kHost) {
        verbs_.download_open(visit, partitions[i], open.at[i]);
      }
      continue;
    }
    for (ClosedOnDevice& gradient : verbs_.close(visit, partitions[i], open.at[i])) {
      if (updates_early(kind_) && plan_.speculated(gradient.chunk)) {
        speculate(visit, std::move(gradient));
      } else {
        passage_.take_home(std::move(gradient));
      }
    }
    write_homes(unwritten_.size(), When::kSpeculating);
  }
}

OpenOnDevice Step::backward(int visit, const WeightsOnDevice& weights) {
  OpenOnDevice opened = open(visit);
  turns_.backward(visit, weights, opened);
  return opened;
}

}  // namespace
}  // namespace sluice
