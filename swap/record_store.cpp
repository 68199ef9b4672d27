#include "swap/record_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/bytes.h"
#include "swap/record_store_impl.h"

namespace sluice {
namespace {

IoQueueOptions queue_options(const StoreOptions& options, int drives) {
  IoQueueOptions queue = options.queue_for(drives);
  if (!queue.log) queue.log = options.log;
  return queue;
}

int64_t table_buffer_bytes_for(int64_t record_count, int64_t caller_bytes) {
  return round_up(table_payload_bytes(record_count, caller_bytes), kStoreBlockBytes);
}

}  // namespace

RecordStore::Impl::Impl(const Geometry& geometry, const StoreIdentity& store_identity, StoreOptions store_options,
                        Place place)
    : identity(store_identity),
      options(std::move(store_options)),
      layout(geometry, store_identity.format(), place.weights, options.scratch_bytes),
      weights(std::move(place.weights)),
      drives(std::move(place.drives)),
      fingerprint(fingerprint_of(store_identity)),
      entries(2 * geometry.chunks().size()),
      scratch(options.scratch_bytes.size()),
      table(table_buffer_bytes_for(static_cast<int64_t>(entries.size()), options.caller_bytes)),
      block(kStoreBlockBytes),
      transfers(options.make_queue(queue_options(options, layout.drives())), drives, options.block_bytes) {
  SLUICE_CHECK(static_cast<int>(drives.size()) == layout.drives(), "one weight for each drive");
  SLUICE_CHECK(identity.chunk_count == layout.chunk_count() && identity.chunk_elements == geometry.chunk_elements(),
               "the identity is not that of the geometry");
  SLUICE_CHECK(0 <= identity.rank && identity.rank < identity.world_size, "a rank of the world begins at 0");
  for (StepState* const state : {&committed, &pending})
    state->caller.reserve(static_cast<size_t>(options.caller_bytes));
}

void RecordStore::Impl::grow_table_buffer(int64_t payload_bytes) {
  const int64_t bytes = round_up(payload_bytes, kStoreBlockBytes);
  if (bytes > table.bytes()) table = AlignedBuffer(bytes);
}

RecordStore::Impl::Entry& RecordStore::Impl::entry(RecordId record) {
  const bool is_kept = record.group == Group::kWeights || record.group == Group::kState;
  SLUICE_CHECK(record.chunk < layout.chunk_count() && is_kept, "no such record");
  return entries[index_of(record)];
}

// Before anything is noted down of a transfer.
void RecordStore::Impl::check_start(const std::byte* memory) const {
  SLUICE_CHECK(memory != nullptr && reinterpret_cast<uintptr_t>(memory) % kPlaneAlignmentBytes == 0,
               "the memory of a transfer begins at 4096 bytes");
  check_room();
}

void RecordStore::Impl::check_given_up() const {
  SLUICE_CHECK(!unread, "a commit that could not be read is not given up yet: open_step()");
}

void RecordStore::Impl::check_room() const {
  SLUICE_CHECK(transfers.in_flight() < kMaxTransfers, "more than 64 transfers of a store in flight");
}

void RecordStore::Impl::start_record(RecordId record, IoOp op, std::byte* memory, uint64_t tag) {
  Entry& e = entry(record);
  check_start(memory);
  int slot = e.working_slot;
  if (op == IoOp::kRead) {
    SLUICE_CHECK(e.writers == 0 && e.readers < UINT8_MAX, "a read beside a write of the same record");
    SLUICE_CHECK(e.has_content, "a read of a record that was never written");
    ++e.readers;
  } else {
    SLUICE_CHECK(e.writers == 0 && e.readers == 0, "a write beside another transfer of the same record");
    SLUICE_CHECK(stage == Stage::kIdle, "a record is written before the commit of the step before is durable");
    SLUICE_CHECK(e.has_checksums, "a record is written whose checksums were never set: sum_record() sets them");
    if (e.is_committed) slot = 1 - e.committed_slot;
    ++e.writers;
    ++writes_in_flight;
  }
  const Transfer transfer{.op = op, .memory = memory, .tag = tag, .owner = index_of(record)};
  if (op == IoOp::kWrite && refused()) return transfers.start_failed(transfer, refused());
  if (op == IoOp::kWrite) {
    written_bytes += layout.layout(record).bytes;
    e.working_slot = static_cast<uint8_t>(slot);
    e.has_content = true;
    e.is_committed = false;
    std::copy(std::begin(e.next), std::end(e.next), std::begin(e.written));
    previous_step = -1;  // its slots are the ones written to
  }
  transfers.start(transfer, layout.extents(record, slot).span());
}

void RecordStore::Impl::end_record(const TransferEnd& end) {
  Entry& e = entries[end.owner];
  if (e.readers > 0) {
    --e.readers;
    return;
  }
  --e.writers;
  --writes_in_flight;
  note_failure(end.error);
}

void RecordStore::Impl::end_transfer(const TransferEnd& end) {
  if ((end.owner & kRehearses) != 0) {
    --entries[end.owner & ~kRehearses].readers;
    note_failure(end.error);
    return;
  }
  static_cast<int64_t>(end.owner) < record_count() ? end_record(end) : end_scratch(end);
}

// The table as it will be when this commit is durable. A record written since the last one gets this commit's step.
void RecordStore::Impl::fill_table(const StepState& state) {
  SLUICE_CHECK(static_cast<int64_t>(state.caller.size()) <= kMaxCallerBytes,
               "a commit carries 1 MiB of the caller's at most");
  SLUICE_CHECK(state.step >= 0, "a step before the first");
  pending = state;
  pending_table_bytes = table_payload_bytes(record_count(), static_cast<int64_t>(state.caller.size()));
  grow_table_buffer(pending_table_bytes);
  std::span<TableEntry> on_disk = table_entries(table.span(), record_count());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    SLUICE_CHECK(e.has_content, "a commit covers every record: one has never been written");
    on_disk[i] = {.step = e.is_committed ? e.step : state.step, .crc = {}, .slot = e.working_slot};
    std::copy(std::begin(e.written), std::end(e.written), std::begin(on_disk[i].crc));
  }
  // A number is used up by being written anywhere: a commit that fails does not give it back.
  pending_crc = seal_table(table.span(), state, ++generation, record_count());
}

// A file that was cut short and grew again by the writes of this step would be committed to without its header.
void RecordStore::Impl::check_drives() {
  try {
    for (const Drive& drive : drives) {
      drive.check_whole();
      if (options.names == FileNames::kStay) drive.check_named();
    }
  } catch (const IoError&) {
    note_failure(std::current_exception());
  }
}

void RecordStore::Impl::start_stage(Stage next) {
  stage = next;
  const int area = spare_area();
  switch (next) {
    case Stage::kIdle:
      return;
    case Stage::kTable: {
      const Extent at{.offset = layout.table_offset(area), .bytes = round_up(pending_table_bytes, kStoreBlockBytes)};
      return transfers.start({.op = IoOp::kWrite, .memory = table.data(), .owner = kCommitOwner}, {&at, 1});
    }
    case Stage::kTableSync:  // the records of all drives with it
      return transfers.start({.op = IoOp::kSync, .owner = kCommitOwner}, everywhere());
    case Stage::kSuperblock: {
      write_superblock(block.span(), {.generation = generation,
                                      .fingerprint = fingerprint,
                                      .step = pending.step,
                                      .table_offset = layout.table_offset(area),
                                      .table_bytes = pending_table_bytes,
                                      .table_crc = pending_crc});
      const Extent at{.offset = kSuperblockOffset[area], .bytes = kStoreBlockBytes};
      return transfers.start({.op = IoOp::kWrite, .memory = block.data(), .owner = kCommitOwner}, {&at, 1});
    }
    case Stage::kSuperblockSync:
      return transfers.start({.op = IoOp::kSync, .owner = kCommitOwner}, everywhere().first(1));
  }
}

std::span<const Extent> RecordStore::Impl::everywhere() const {
  static constexpr auto kSyncs = [] {
    std::array<Extent, kMaxDrives> all{};
    for (int drive = 0; drive < kMaxDrives; ++drive) all[static_cast<size_t>(drive)].drive = drive;
    return all;
  }();
  return std::span(kSyncs).first(drives.size());
}

bool RecordStore::Impl::advance_commit(const TransferEnd& end) {
  if (end.error) {
    // Final. A failed fdatasync may not be tried again (the next one can succeed although the bytes are lost), and a
    // superblock whose write failed may be on the drive all the same: its slots must not change any more.
    note_failure(end.error);
    stage = Stage::kIdle;
    return true;
  }
  if (stage == Stage::kSuperblockSync) {
    written_bytes += commit_bytes(layout.chunk_count(), static_cast<int64_t>(pending.caller.size()));
    adopt_commit();
    return true;
  }
  start_stage(static_cast<Stage>(static_cast<int>(stage) + 1));
  return false;
}

void RecordStore::Impl::adopt_commit() {
  for (Entry& e : entries) {
    if (!e.is_committed) e.step = pending.step;
    e.committed_slot = e.working_slot;
    e.is_committed = e.has_committed = true;
    std::copy(std::begin(e.written), std::end(e.written), std::begin(e.committed));
  }
  current_area = spare_area();
  previous_step = has_generation ? committed.step : -1;
  has_generation = true;
  std::swap(committed, pending);
  stage = Stage::kIdle;
  for (Drive& drive : drives) drive.keep();
}

RecordStore::RecordStore() = default;
RecordStore::~RecordStore() = default;

void RecordStore::leave_no_files() {
  SLUICE_CHECK(impl_->is_new && impl_->committed.step == 0, "a store that has come to a step is given up");
  for (Drive& drive : impl_->drives) drive.remove_with_owner();
}

const StepState& RecordStore::committed() const { return impl_->committed; }

std::vector<int64_t> RecordStore::openable_steps() const {
  std::vector<int64_t> steps;
  if (impl_->has_generation) steps.push_back(impl_->committed.step);
  const int64_t before = impl_->previous_step;
  if (before >= 0 && before != impl_->committed.step) steps.push_back(before);
  return steps;
}

void RecordStore::read(RecordId record, std::byte* into, uint64_t tag) {
  impl_->start_record(record, IoOp::kRead, into, tag);
}

void RecordStore::write(RecordId record, const std::byte* from, uint64_t tag) {
  impl_->check_given_up();
  impl_->start_record(record, IoOp::kWrite, const_cast<std::byte*>(from), tag);  // a write request only reads it
}

void RecordStore::discard(RecordId record) {
  Impl::Entry& e = impl_->entry(record);
  SLUICE_CHECK(e.readers == 0 && e.writers == 0, "a record is given up beside a transfer of it");
  SLUICE_CHECK(e.has_committed, "a record is given up that was never committed");
  SLUICE_CHECK(impl_->stage == Impl::Stage::kIdle, "a record is given up that a commit under way covers");
  e.working_slot = e.committed_slot;
  e.is_committed = true;
  std::copy(std::begin(e.committed), std::end(e.committed), std::begin(e.written));
}

void RecordStore::rehearse_write(RecordId record, const std::byte* from, uint64_t tag) {
  Impl& impl = *impl_;
  Impl::Entry& e = impl.entry(record);
  impl.check_given_up();
  impl.check_start(from);
  SLUICE_CHECK(e.is_committed && e.writers == 0, "a rehearsal would overwrite what is not committed");
  SLUICE_CHECK(e.readers < UINT8_MAX, "too many transfers of one record");
  ++e.readers;
  const Transfer transfer{.op = IoOp::kWrite,
                          .memory = const_cast<std::byte*>(from),
                          .tag = tag,
                          .owner = Impl::kRehearses | impl.index_of(record)};
  if (impl.refused()) return impl.transfers.start_failed(transfer, impl.refused());
  impl.written_bytes += impl.layout.layout(record).bytes;
  impl.previous_step = -1;  // its slots are the ones written to
  impl.transfers.start(transfer, impl.layout.extents(record, 1 - e.committed_slot).span());
}

void RecordStore::commit(const StepState& state, uint64_t tag) {
  Impl& impl = *impl_;
  SLUICE_CHECK(impl.stage == Impl::Stage::kIdle, "a commit beside another");
  SLUICE_CHECK(impl.writes_in_flight == 0, "a commit while records are being written");
  impl.check_given_up();
  impl.check_room();
  impl.commit_tag = tag;
  impl.check_drives();
  if (impl.refused()) return impl.transfers.start_failed({.tag = tag, .owner = Impl::kCommitOwner}, impl.refused());
  impl.fill_table(state);
  impl.start_stage(Impl::Stage::kTable);
}

size_t RecordStore::poll(std::span<StoreCompletion> completions, Wait wait) {
  if (impl_->poll_error) std::rethrow_exception(std::exchange(impl_->poll_error, nullptr));
  size_t count = 0;
  while (count < completions.size()) {
    std::array<TransferEnd, 8> ends;
    const size_t room = std::min(ends.size(), completions.size() - count);
    size_t ended = 0;
    try {
      ended = impl_->transfers.poll(std::span(ends).first(room), count > 0 ? Wait::kNo : wait);
    } catch (...) {
      if (count == 0) throw;
      impl_->poll_error = std::current_exception();  // what has ended is told first
    }
    if (ended == 0) break;
    for (const TransferEnd& end : std::span(ends).first(ended)) {
      if (end.owner != Impl::kCommitOwner) {
        impl_->end_transfer(end);
        completions[count++] = {.tag = end.tag, .error = end.error};
      } else if (impl_->advance_commit(end)) {
        completions[count++] = {.tag = impl_->commit_tag, .error = end.error};
      }
    }
  }
  return count;
}

void RecordStore::interrupt() { impl_->transfers.interrupt(); }
int RecordStore::in_flight() const { return impl_->transfers.in_flight(); }

RecordLayout RecordStore::layout(RecordId record) const {
  impl_->entry(record);  // there is one
  return impl_->layout.layout(record);
}

std::span<const uint32_t> RecordStore::checksums(RecordId record) const {
  const size_t planes = planes_of(impl_->identity.format(), record.group).size();
  return std::span(impl_->entry(record).written).first(planes);
}

void RecordStore::set_checksums(RecordId record, std::span<const uint32_t> crcs) {
  SLUICE_CHECK(crcs.size() == planes_of(impl_->identity.format(), record.group).size(), "one checksum for each plane");
  Impl::Entry& e = impl_->entry(record);
  std::copy(crcs.begin(), crcs.end(), std::begin(e.next));
  e.has_checksums = true;
}

namespace {

const char* older_copies(size_t drives) {
  return drives > 1 ? ", and that no drive's file is an older copy than the others'" : "";
}

}  // namespace

CorruptionError RecordStore::corruption(RecordId record, int plane, uint32_t found, const std::string& block) const {
  const Impl::Entry& e = impl_->entry(record);
  const auto p = static_cast<size_t>(plane);
  const auto planes = planes_of(impl_->identity.format(), record.group);
  SLUICE_CHECK(plane >= 0 && p < planes.size(), "no such plane");
  const StoreWords& words = *impl_->options.words;
  // A store without a name is opened by nobody again.
  const std::string otherwise =
      impl_->options.names == FileNames::kTakenAway
          ? ""
          : fmt::format(
                "; where that ends here again the drive has kept other bytes than it was given: see whether the step "
                "before is whole{}, or {}",
                words.step_before, words.start_over);
  return CorruptionError(fmt::format(
      "bytes read are not the bytes written: block {}, chunk {}, {}, plane {}: CRC32C {:08x} expected, {:08x} found "
      "({}); nothing was done with them; check the drive and its cables{}, then {}{}",
      block, record.chunk, name_of(record.group), planes[p].name, e.written[p], found,
      impl_->places_of(record, e.working_slot, p), older_copies(impl_->drives.size()), words.go_on, otherwise));
}

// Where a plane lies, on each of the drives that have a part of it.
std::string RecordStore::Impl::places_of(RecordId record, int slot, size_t plane) const {
  const RecordLayout planes = layout.layout(record);
  const int64_t begin = planes.plane_offset[plane];
  const int64_t end =
      plane + 1 < static_cast<size_t>(planes.plane_count) ? planes.plane_offset[plane + 1] : planes.bytes;
  std::vector<std::string> places;
  int64_t at = 0;  // of the extent, in the record
  const Extents extents = layout.extents(record, slot);
  for (const Extent& extent : extents.span()) {
    const int64_t from = std::max(begin, at);
    if (from < std::min(end, at + extent.bytes)) {
      const Extent place = layout.place_of(record, slot, from);
      places.push_back(fmt::format("offset {} of {}", place.offset, drives[static_cast<size_t>(place.drive)].name()));
    }
    at += extent.bytes;
  }
  return fmt::format("{}", fmt::join(places, ", "));
}

const std::filesystem::path& RecordStore::path() const { return impl_->drives.front().path(); }

std::string RecordStore::describe() const {
  const std::string queue = impl_->transfers.queue().describe();
  if (impl_->drives.size() == 1) return queue;
  return fmt::format("{}; records are split over {} drives as {}", queue, impl_->drives.size(),
                     fmt::join(impl_->weights, " : "));
}

int64_t RecordStore::predicted_table_bytes(const TableNeeds& needs) {
  constexpr int64_t kIdentityBytes = 4096;  // of the model's text, strings
  return 2 * needs.chunk_count * static_cast<int64_t>(sizeof(Impl::Entry)) +
         needs.scratch_count * static_cast<int64_t>(sizeof(Impl::ScratchEntry) + sizeof(int64_t)) +
         StoreLayout::memory_bytes(needs) + needs.drives * static_cast<int64_t>(sizeof(Drive) + sizeof(uint32_t)) +
         table_buffer_bytes_for(2 * needs.chunk_count, needs.caller_bytes) + 2 * needs.caller_bytes + kStoreBlockBytes +
         kIdentityBytes + static_cast<int64_t>(sizeof(Impl)) +
         Transfers::memory_bytes(needs.drives, for_drives({.depth = needs.depth}, needs.drives).depth);
}

int64_t RecordStore::commit_bytes(int64_t chunk_count, int64_t caller_bytes) {
  return table_buffer_bytes_for(2 * chunk_count, caller_bytes) + kStoreBlockBytes;
}

int64_t RecordStore::read_caller_bytes() const { return impl_->read_caller_bytes; }

int64_t RecordStore::written_bytes() const { return impl_->written_bytes; }

int64_t RecordStore::table_bytes() const {
  const Impl& impl = *impl_;
  const int64_t plain = predicted_table_bytes({.chunk_count = impl.layout.chunk_count(),
                                               .scratch_count = impl.layout.scratch_count(),
                                               .depth = impl.options.queue.depth,
                                               .drives = impl.layout.drives()});
  const int64_t grown = impl.table.bytes() - table_buffer_bytes_for(impl.record_count(), 0);
  return plain + grown + static_cast<int64_t>(impl.committed.caller.capacity() + impl.pending.caller.capacity());
}

namespace {

void wait_for_one(RecordStore& store) {
  StoreCompletion done;
  while (store.poll({&done, 1}, Wait::kUntilOne) == 0) {
  }
  if (done.error) std::rethrow_exception(done.error);
}

}  // namespace

void read_now(RecordStore& store, RecordId record, std::byte* into) {
  SLUICE_CHECK(store.in_flight() == 0, "other transfers are in flight");
  store.read(record, into, 0);
  wait_for_one(store);
}

void write_now(RecordStore& store, RecordId record, const std::byte* from) {
  SLUICE_CHECK(store.in_flight() == 0, "other transfers are in flight");
  store.write(record, from, 0);
  wait_for_one(store);
}

void commit_now(RecordStore& store, const StepState& state) {
  SLUICE_CHECK(store.in_flight() == 0, "other transfers are in flight");
  store.commit(state, 0);
  wait_for_one(store);
}

}  // namespace sluice
