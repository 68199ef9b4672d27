// bf16 and fp16 from and to fp32 by integer arithmetic, and for fp16's subnormals one fp32 operation: nearest even,
// subnormals kept, NaN stays NaN. The same bits on every machine; core/half_lanes.inl is the same on vectors. (The
// split master rounds differently: split_master.h.)
#pragma once
#include <bit>
#include <cstdint>

namespace sluice {

constexpr float float_of_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

constexpr uint16_t bf16_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float float_of_fp16(uint16_t half) {
  const uint32_t sign = (uint32_t{half} & 0x8000u) << 16;
  const uint32_t shifted = (uint32_t{half} & 0x7fffu) << 13;
  uint32_t bits = shifted + (112u << 23);
  if (shifted >= 0x0f800000u) {  // Inf, NaN
    bits += 112u << 23;
  } else if (shifted < 0x00800000u) {  // zero, subnormal: an exact subtraction of normal numbers renormalizes
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits + (1u << 23)) - 0x1p-14f);
  }
  return std::bit_cast<float>(bits | sign);
}

constexpr uint16_t fp16_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above; 65520 and above reach Inf by the carry below
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the adder rounds at fp16's last subnormal bit
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(half | sign);
}

}  // namespace sluice
