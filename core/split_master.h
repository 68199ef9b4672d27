// bf16 split master: the fp32 master is never stored. hi = (bits + 0x8000) >> 16 is the bf16 weight (nearest, ties away
// from zero), lo = int16(bits - (hi << 16)) the residual; bits = (hi << 16) + lo modulo 2^32 restores the master
// exactly. A NaN master: hi = (bits >> 16) | 0x40, lo = the low half; it stays a NaN.
#pragma once
#include <bit>
#include <cstdint>

namespace sluice {

struct SplitMaster {
  uint16_t weight;  // bf16 pattern
  int16_t residual;
};

constexpr SplitMaster split_master(float master) {
  const uint32_t bits = std::bit_cast<uint32_t>(master);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u), static_cast<int16_t>(static_cast<uint16_t>(bits))};
  }
  const uint32_t high = (bits + 0x8000u) >> 16;
  return {static_cast<uint16_t>(high), static_cast<int16_t>(static_cast<uint16_t>(bits - (high << 16)))};
}

constexpr float join_master(SplitMaster split) {
  const uint32_t high = uint32_t{split.weight} << 16;
  return std::bit_cast<float>(high + static_cast<uint32_t>(static_cast<int32_t>(split.residual)));
}

}  // namespace sluice
