// Checksums of whole records in memory, for those who do not fold them into a pass of their own over the bytes. Of one
// record at a time, as RecordStore's set_checksums() and checksums().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "swap/record_store.h"

namespace sluice {

// Of each plane; the rest is zero.
std::array<uint32_t, kMaxPlanes> sums_of(const RecordLayout& layout, RecordId record, const std::byte* bytes);
// Before write(): the checksums of what it will take from `bytes`.
void sum_record(RecordStore& store, RecordId record, const std::byte* bytes);
// After a read's completion. Throws the store's CorruptionError, which calls the record's block `name`.
void verify_record(const RecordStore& store, RecordId record, const std::byte* bytes, const std::string& name);

}  // namespace sluice
