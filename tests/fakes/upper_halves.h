// The upper halves of this thread's vector registers: whether they are in use, and using them as a kernel does that
// does not clean up.
#pragma once

namespace sluice::testing {

#ifdef __x86_64__
inline bool can_tell_upper_halves() {
  constexpr unsigned kExtendedState = 13, kTellsInUse = 1U << 2;
  unsigned a = kExtendedState, b = 0, c = 1, d = 0;
  asm("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return __builtin_cpu_supports("avx") && (a & kTellsInUse) != 0;
}

inline bool upper_halves_in_use() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  constexpr unsigned kUpperHalves = 1U << 2;
  return (low & kUpperHalves) != 0;
}

inline void use_upper_halves() { asm volatile("vcmptrueps %%ymm5, %%ymm5, %%ymm5" ::: "xmm5"); }
#else
inline bool can_tell_upper_halves() { return false; }
inline bool upper_halves_in_use() { return false; }
inline void use_upper_halves() {}
#endif

}  // namespace sluice::testing
