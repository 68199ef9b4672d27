// The steps that an open store has: verifying one, and going back to the one before.
#include <fmt/format.h>

#include <algorithm>

#include "swap/record_checksums.h"
#include "swap/record_store_impl.h"

namespace sluice {

std::optional<RecordStore::Impl::RecordCopy> RecordStore::Impl::committed_copy(int64_t index) const {
  const Entry& entry = entries[static_cast<size_t>(index)];
  return RecordCopy{entry.committed_slot, entry.committed};
}

// Every record of a step that `wanted` names a copy of. Throws CorruptionError with `otherwise` at its end.
void RecordStore::Impl::verify_copies(int64_t step, const Verifying& verifying) {
  AlignedBuffer bytes(kStoreBlockBytes);
  int64_t done = 0, all = 0;
  const auto record_at = [](int64_t i) {
    return RecordId{.chunk = static_cast<uint32_t>(i / 2), .group = static_cast<Group>(i % 2)};
  };
  for (int64_t i = 0; i < record_count(); ++i) {
    if (verifying.wanted(i)) all += layout.layout(record_at(i)).bytes;
  }
  for (int64_t i = 0; i < record_count(); ++i) {
    const std::optional<RecordCopy> copy = verifying.wanted(i);
    if (!copy) continue;
    const RecordId record = record_at(i);
    const RecordLayout planes = layout.layout(record);
    if (planes.bytes > bytes.bytes()) bytes = AlignedBuffer(planes.bytes);
    transfers.run_now({.op = IoOp::kRead, .memory = bytes.data()}, layout.extents(record, copy->slot).span());
    const auto found = sums_of(planes, record, bytes.data());
    for (size_t plane = 0; plane < static_cast<size_t>(planes.plane_count); ++plane) {
      if (found[plane] == copy->crc[plane]) continue;
      throw CorruptionError(
          fmt::format("step {} is not whole{}: chunk {}, {}, plane {}: CRC32C {:08x} expected, {:08x} found ({}){}",
                      step, step == committed.step ? "" : " any more", record.chunk, name_of(record.group),
                      planes_of(identity.format(), record.group)[plane].name, copy->crc[plane], found[plane],
                      places_of(record, copy->slot, plane), verifying.otherwise));
    }
    if (verifying.progress) verifying.progress(done += planes.bytes, all);
  }
}

// Leaves the older step's table in the table buffer.
Superblock RecordStore::Impl::read_previous_table() {
  const int older = 1 - current_area;
  const FoundSuperblock found = read_superblocks()[static_cast<size_t>(older)];
  if (found.unread) throw IoError(*found.unread);
  if (found.state != BlockState::kValid || !read_table(older, found.superblock)) {
    throw CorruptionError(fmt::format("the table of step {} in {} is damaged: the store opens at step {} only",
                                      previous_step, drives[0].name(), committed.step));
  }
  return found.superblock;
}

void RecordStore::Impl::verify(int64_t step, const std::function<void(int64_t, int64_t)>& progress) {
  SLUICE_CHECK(transfers.in_flight() == 0 && stage == Stage::kIdle, "a step is verified before anything is moved");
  SLUICE_CHECK(has_generation && step >= 0 && (step == committed.step || step == previous_step),
               "not one of openable_steps()");
  Verifying verifying{.wanted = {}, .progress = progress, .otherwise = ""};
  if (step == committed.step) {
    verifying.wanted = [this](int64_t i) { return committed_copy(i); };
  } else {
    read_previous_table();
    verifying.wanted = [older = table_entries(table.span(), record_count())](int64_t i) {
      const TableEntry& entry = older[static_cast<size_t>(i)];
      return std::optional(RecordCopy{static_cast<int>(entry.slot & 1), entry.crc});
    };
  }
  verify_copies(step, verifying);
}

// What the older table, which is in the table buffer, has elsewhere or otherwise than the newer one. Slots that both
// name were verified as often as the newer step was read, and going back makes nothing of them worse.
void RecordStore::Impl::verify_older(int64_t step) {
  const std::span<const TableEntry> older = table_entries(table.span(), record_count());
  const auto differing = [&](int64_t i) -> std::optional<RecordCopy> {
    const TableEntry& entry = older[static_cast<size_t>(i)];
    const Entry& newer = entries[static_cast<size_t>(i)];
    const int slot = static_cast<int>(entry.slot & 1);
    if (slot == newer.committed_slot && std::ranges::equal(entry.crc, newer.committed)) return std::nullopt;
    return RecordCopy{slot, entry.crc};
  };
  verify_copies(step, {.wanted = differing,
                       .progress = options.progress,
                       .otherwise = fmt::format(": the store opens at step {} only", committed.step)});
}

// The newer superblock, or the one that may be newer, is blanked before anything else is written: from then on its
// slots are the working ones, and a crash must not find its way back to it.
void RecordStore::Impl::open_step(int64_t step) {
  SLUICE_CHECK(transfers.in_flight() == 0 && stage == Stage::kIdle, "a step is opened before anything is moved");
  if (has_generation && step == committed.step && !unread) return;
  if (refused()) std::rethrow_exception(refused());
  if (has_generation && step == committed.step) {  // the other one may be whole, and this one not
    verify(step, options.progress);
    return give_up(1 - current_area);
  }
  SLUICE_CHECK(step >= 0 && step == previous_step, "not one of openable_steps()");
  const int newer = current_area;
  Superblock superblock;
  try {
    superblock = read_previous_table();
    verify_older(step);
  } catch (...) {
    previous_step = -1;  // it is not offered again
    throw;
  }
  previous_step = -1;
  adopt_table(1 - newer, superblock);
  give_up(newer);
}

void RecordStore::Impl::give_up(int area) {
  write_given_up(block.span(), fingerprint);
  try {
    run_block(IoOp::kWrite, kSuperblockOffset[area]);
    transfers.run_now({.op = IoOp::kSync}, everywhere().first(1));
  } catch (const IoError&) {  // the newer step may still be what a crash leaves: nothing is written into its slots
    failed = std::current_exception();
    throw;
  }
  unread.reset();
}

// A newer step that was read as damaged may be read as whole the next time. It is given up, since its slots will be
// written to, only where the one in its place is whole, which a step that was cut off may have written to.
void RecordStore::Impl::verify_in_place_of_damaged() {
  if (!is_newer_damaged || unread) return;
  verify_copies(committed.step, {.wanted = [this](int64_t i) { return committed_copy(i); },
                                 .progress = options.progress,
                                 .otherwise = fmt::format(
                                     "; a later commit, which reads as damaged, is left as it is, for the drive may "
                                     "give it the next time: look at the drive's health (dmesg) and open the store "
                                     "again, or {}",
                                     options.words->start_over)});
}

void RecordStore::Impl::give_up_damaged() {
  if (is_newer_damaged && !unread) give_up(1 - current_area);
}

std::optional<int64_t> RecordStore::lost_step() const { return impl_->lost_step; }
bool RecordStore::has_unread_commit() const { return impl_->unread.has_value(); }
void RecordStore::open_step(int64_t step) { impl_->open_step(step); }
void RecordStore::verify(int64_t step, const std::function<void(int64_t, int64_t)>& progress) {
  impl_->verify(step, progress);
}

}  // namespace sluice
