// Checksums of records in memory: of whole ones, and the beginnings and ends for those who fold them into a pass of
// their own over the bytes. Of one record at a time, as RecordStore's set_checksums() and checksums().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "swap/record_store.h"

namespace sluice {

using RecordSums = std::array<uint32_t, kMaxPlanes>;  // CRC32C of each plane, seeded with chunk, group and plane

RecordSums empty_sums(RecordId record);  // to go on from
RecordSums sums_of(const RecordLayout& layout, RecordId record, const std::byte* bytes);
// Before write(): the checksums of what it will take.
void keep_sums(RecordStore& store, RecordId record, const RecordSums& sums);
void sum_record(RecordStore& store, RecordId record, const std::byte* bytes);
// After a read's completion. Throws the store's CorruptionError, which calls the record's block `name`.
void expect_sums(const RecordStore& store, RecordId record, const RecordSums& found, const std::string& name);
void verify_record(const RecordStore& store, RecordId record, const std::byte* bytes, const std::string& name);

}  // namespace sluice
