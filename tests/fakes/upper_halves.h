// The upper halves of this thread's vector registers: whether they are in use, and using them as a kernel does that
// does not clean up. One register stands for all, the last: little else takes it.
#pragma once
#include <cstdint>

namespace sluice::testing {

#ifdef __x86_64__
inline bool has_upper_halves() { return __builtin_cpu_supports("avx"); }

inline bool upper_halves_in_use() {
  uint64_t words[4];
  asm volatile("vmovups %%ymm15, %0" : "=m"(words));
  return (words[2] | words[3]) != 0;
}

inline void use_upper_halves() { asm volatile("vcmptrueps %%ymm15, %%ymm15, %%ymm15" ::: "xmm15"); }
#else
inline bool has_upper_halves() { return false; }
inline bool upper_halves_in_use() { return false; }
inline void use_upper_halves() {}
#endif

}  // namespace sluice::testing
