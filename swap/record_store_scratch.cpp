// Scratch extents of a store: bytes that a run keeps on its drives and that no later run looks for.
#include <fmt/format.h>

#include "swap/record_store_impl.h"

namespace sluice {

RecordStore::Impl::ScratchEntry& RecordStore::Impl::scratch_entry(int extent) {
  SLUICE_CHECK(extent >= 0 && extent < layout.scratch_count(), "no such scratch extent");
  return scratch[static_cast<size_t>(extent)];
}

void RecordStore::Impl::start_scratch(int extent, IoOp op, std::byte* memory, uint64_t tag) {
  ScratchEntry& e = scratch_entry(extent);
  check_start(memory);
  const bool is_read = op == IoOp::kRead;
  SLUICE_CHECK(e.writers == 0 && (is_read || e.readers == 0), "a write beside another transfer of the same extent");
  SLUICE_CHECK(e.readers < UINT8_MAX, "too many reads of one extent");
  ++(is_read ? e.readers : e.writers);
  const Transfer transfer{.op = op,
                          .memory = memory,
                          .tag = tag,
                          .owner = static_cast<uint32_t>(record_count()) + static_cast<uint32_t>(extent)};
  if (!is_read && failed) return transfers.start_failed(transfer, failed);
  if (!is_read) written_bytes += layout.scratch_bytes(extent);
  transfers.start(transfer, layout.scratch_extents(extent).span());
}

void RecordStore::Impl::end_scratch(const TransferEnd& end) {
  ScratchEntry& e = scratch[end.owner - static_cast<uint32_t>(record_count())];
  if (e.readers > 0) {
    --e.readers;
    return;
  }
  --e.writers;
  note_failure(end.error);
}

void RecordStore::read_scratch(int extent, std::byte* into, uint64_t tag) {
  impl_->start_scratch(extent, IoOp::kRead, into, tag);
}

void RecordStore::write_scratch(int extent, const std::byte* from, uint64_t tag) {
  impl_->start_scratch(extent, IoOp::kWrite, const_cast<std::byte*>(from), tag);  // a write request only reads it
}

uint32_t RecordStore::scratch_checksum(int extent) const { return impl_->scratch_entry(extent).crc; }
void RecordStore::set_scratch_checksum(int extent, uint32_t crc) { impl_->scratch_entry(extent).crc = crc; }

CorruptionError RecordStore::scratch_corruption(int extent, uint32_t found, const std::string& what) const {
  const uint32_t expected = scratch_checksum(extent);  // there is such an extent
  const Extents extents = impl_->layout.scratch_extents(extent);
  const Extent& at = extents.list[0];
  return CorruptionError(fmt::format(
      "bytes read are not the bytes written: {}, scratch extent {}: CRC32C {:08x} expected, {:08x} found (offset {} of "
      "{}{}); nothing was done with them; check the drive and its cables, then {}",
      what, extent, expected, found, at.offset, impl_->drives[static_cast<size_t>(at.drive)].name(),
      extents.count > 1 ? " and further drives" : "", impl_->options.words->go_on));
}

}  // namespace sluice
