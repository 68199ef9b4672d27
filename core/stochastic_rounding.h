// Rounding of moments to bf16, up or down by chance, so that the mean of many is right: what is too small for a
// moment's eight bits is not lost, as it would be each time by rounding to nearest. The chance is a function of
// counters (seed, step, element): chunks, homes, threads and resuming change nothing.
#pragma once
#include <bit>
#include <cstdint>

namespace sluice {

// Of one step's update: a function of the seed and the step's number.
uint32_t rounding_key(uint64_t seed, int64_t t);

// 32 random bits of an element: multiplications and shifts, as vectors have them too (a multiply-xorshift mixer of full
// avalanche). Moment 1 takes the low half, moment 2 the high one. Elements 2^32 apart share theirs.
constexpr uint32_t rounding_bits(uint32_t key, int64_t element) {
  uint32_t x = static_cast<uint32_t>(element) * 0x9e3779b1u + key;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// `chance` is below 2^16: as many of its values round the magnitude up as the pattern's low half says. Infinities and
// NaN stay, and no finite value becomes infinite: above the largest of bf16 all are rounded down.
constexpr uint16_t bf16_by_chance(float value, uint32_t chance) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((magnitude >= 0x7f7f0000u ? bits : bits + chance) >> 16);
}

}  // namespace sluice
