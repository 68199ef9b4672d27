// Counter-based random numbers: every number is a function of its counters, so recompute and resume need no state.
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 32 bits, element `index` of the stream (seed, stream).
double uniform_at(uint64_t seed, uint64_t stream, uint64_t index);
// Standard normal (Box-Muller on two uniforms of one counter), element `index` of the stream (seed, stream).
double normal_at(uint64_t seed, uint64_t stream, uint64_t index);
// A stream number from a name (FNV-1a, 64 bits).
uint64_t stream_of(std::string_view name);

}  // namespace sluice
