// CRC32C (Castagnoli, RFC 3720), by ISA-L. Pure functions, any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace sluice {

// The CRC of nothing is 0; crc32c(crc32c(0, a), b) == crc32c(0, a followed by b). The standard's own pre- and
// post-inversion are inside: crc32c(0, "123456789") == 0xE3069283.
uint32_t crc32c(uint32_t so_far, std::span<const std::byte> bytes);
inline uint32_t crc32c(uint32_t so_far, std::string_view text) {
  return crc32c(so_far, std::as_bytes(std::span(text)));
}

// Of a followed by b, from crc32c(0, a) and crc32c(0, b): a sum moves past `second_bytes` zero bytes by a
// multiplication modulo the polynomial (the method of zlib's crc32_combine).
uint32_t crc32c_joined(uint32_t first, uint32_t second, int64_t second_bytes);

// What a plane's checksum starts from. Depends on where the plane belongs, so that a misdirected read of equal content
// is caught as well.
uint32_t plane_seed(uint32_t chunk, Group group, int plane);

}  // namespace sluice
