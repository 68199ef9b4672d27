#include "core/vector_registers.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace sluice {

#ifdef __x86_64__
namespace {

[[gnu::target("avx")]] void zero_upper_halves() { _mm256_zeroupper(); }

}  // namespace

void release_upper_halves() {
  if (__builtin_cpu_supports("avx")) zero_upper_halves();
}
#else
void release_upper_halves() {}
#endif

}  // namespace sluice
