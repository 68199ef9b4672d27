#include "swap/record_checksums.h"

#include "core/checksum.h"

namespace sluice {

RecordSums empty_sums(RecordId record) {
  RecordSums sums;
  for (int plane = 0; plane < kMaxPlanes; ++plane) {
    sums[static_cast<size_t>(plane)] = plane_seed(record.chunk, record.group, plane);
  }
  return sums;
}

RecordSums sums_of(const RecordLayout& layout, RecordId record, const std::byte* bytes) {
  RecordSums sums = empty_sums(record);
  for (size_t plane = 0; plane < static_cast<size_t>(layout.plane_count); ++plane) {
    sums[plane] =
        crc32c(sums[plane], {bytes + layout.plane_offset[plane], static_cast<size_t>(layout.plane_bytes[plane])});
  }
  return sums;
}

void keep_sums(RecordStore& store, RecordId record, const RecordSums& sums) {
  store.set_checksums(record, std::span(sums).first(static_cast<size_t>(store.layout(record).plane_count)));
}

void sum_record(RecordStore& store, RecordId record, const std::byte* bytes) {
  keep_sums(store, record, sums_of(store.layout(record), record, bytes));
}

void expect_sums(const RecordStore& store, RecordId record, const RecordSums& found, const std::string& name) {
  const std::span<const uint32_t> expected = store.checksums(record);
  for (size_t plane = 0; plane < expected.size(); ++plane) {
    if (found[plane] != expected[plane]) throw store.corruption(record, static_cast<int>(plane), found[plane], name);
  }
}

void verify_record(const RecordStore& store, RecordId record, const std::byte* bytes, const std::string& name) {
  expect_sums(store, record, sums_of(store.layout(record), record, bytes), name);
}

}  // namespace sluice
