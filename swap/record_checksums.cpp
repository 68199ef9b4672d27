#include "swap/record_checksums.h"

#include "core/checksum.h"

namespace sluice {

std::array<uint32_t, kMaxPlanes> sums_of(const RecordLayout& layout, RecordId record, const std::byte* bytes) {
  std::array<uint32_t, kMaxPlanes> sums = {};
  for (int plane = 0; plane < layout.plane_count; ++plane) {
    const auto at = static_cast<size_t>(plane);
    sums[at] = crc32c(plane_seed(record.chunk, record.group, plane),
                      {bytes + layout.plane_offset[at], static_cast<size_t>(layout.plane_bytes[at])});
  }
  return sums;
}

void sum_record(RecordStore& store, RecordId record, const std::byte* bytes) {
  const RecordLayout layout = store.layout(record);
  const auto sums = sums_of(layout, record, bytes);
  store.set_checksums(record, std::span(sums).first(static_cast<size_t>(layout.plane_count)));
}

void verify_record(const RecordStore& store, RecordId record, const std::byte* bytes, const std::string& name) {
  const auto found = sums_of(store.layout(record), record, bytes);
  const std::span<const uint32_t> expected = store.checksums(record);
  for (size_t plane = 0; plane < expected.size(); ++plane) {
    if (found[plane] != expected[plane]) throw store.corruption(record, static_cast<int>(plane), found[plane], name);
  }
}

}  // namespace sluice
