#include "core/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// The product of two polynomials modulo CRC32C's. Their highest bit is the coefficient of x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // without x^32
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a & 0x80000000) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

}  // namespace

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

uint32_t crc32c_joined(uint32_t first, uint32_t second, int64_t second_bytes) {
  uint32_t power = 0x00800000;  // x^8: one zero byte
  for (int64_t left = second_bytes; left > 0; left >>= 1) {
    if ((left & 1) != 0) first = multiply(first, power);
    power = multiply(power, power);
  }
  return first ^ second;
}

uint32_t plane_seed(uint32_t chunk, Group group, int plane) {
  // A CRC of the place itself: two places that differ in 32 neighbouring bits or fewer never share a seed.
  const std::array<std::byte, 6> place = {std::byte(chunk),       std::byte(chunk >> 8), std::byte(chunk >> 16),
                                          std::byte(chunk >> 24), std::byte(group),      std::byte(plane)};
  return crc32c(0, place);
}

}  // namespace sluice
