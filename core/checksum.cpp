#include "core/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace sluice {

uint32_t crc32c(uint32_t so_far, std::span<const std::byte> bytes) {
  // ISA-L's function inverts neither its seed nor its result, takes an int length and a pointer to non-const.
  constexpr size_t kMostBytes = size_t{1} << 30;
  uint32_t state = ~so_far;
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMostBytes);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(part), state);
    bytes = bytes.subspan(part);
  }
  return ~state;
}

uint32_t plane_seed(uint32_t chunk, Group group, int plane) {
  // A CRC of the place itself: two places that differ in 32 neighbouring bits or fewer never share a seed.
  const std::array<std::byte, 6> place = {std::byte(chunk),       std::byte(chunk >> 8), std::byte(chunk >> 16),
                                          std::byte(chunk >> 24), std::byte(group),      std::byte(plane)};
  return crc32c(0, place);
}

}  // namespace sluice
