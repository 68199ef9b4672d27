#include "core/random.h"

#include <cmath>
#include <numbers>

namespace sluice {
namespace {

constexpr double kTwoToMinus32 = 0x1p-32;

std::array<uint32_t, 4> draw(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  return philox4x32({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double uniform_at(uint64_t seed, uint64_t stream, uint64_t index) {
  return draw(seed, stream, index)[0] * kTwoToMinus32;
}

double normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  const std::array<uint32_t, 4> bits = draw(seed, stream, index);
  // In (0, 1], so that the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log((bits[0] + 1.0) * kTwoToMinus32));
  return radius * std::cos(2.0 * std::numbers::pi * (bits[1] * kTwoToMinus32));
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace sluice
