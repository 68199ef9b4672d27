// Streams that show what memory gives: the ceilings of kernels that are bound by it. In vectors of the widest kind that
// this CPU has. Pure functions on the caller's memory.
#pragma once
#include <cstdint>
#include <span>

namespace sluice {

// Reads and writes back every float in place: 8 bytes of traffic an element. Values stay finite.
void stream_in_place(float* data, int64_t elements);
// a[i] = b[i] + 0.5f * c[i]: 12 bytes an element, as STREAM counts them. kPastCaches: a's lines are not read before
// they are written, so that memory moves no more than is counted; a is aligned to 128 bytes.
enum class Stores : uint8_t { kCached, kPastCaches };
void triad(float* a, std::span<const float> b, std::span<const float> c, Stores stores);
// The divisions and the square root of one Adam update for each of `elements`, on registers alone; returns a value made
// of all so that none is left out. What no kernel that uses the divider can beat.
float divide_and_root(int64_t elements);

}  // namespace sluice
