// Floating-point arithmetic that a caller may have left in its thread: rounding up, subnormal numbers taken for zeros
// (where the processor is known here).
#pragma once
#include <bit>
#include <cfenv>
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace sluice {

inline void take_subnormals_for_zeros() {
#ifdef __x86_64__
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

class OddArithmetic {
 public:
  OddArithmetic() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
    take_subnormals_for_zeros();
  }
  ~OddArithmetic() { std::fesetenv(&before_); }
  OddArithmetic(OddArithmetic&&) = delete;

 private:
  std::fenv_t before_;
};

// Whether the calling thread rounds to nearest and knows subnormal numbers.
inline bool arithmetic_is_ieee() {
  const volatile float one = 1, little = 0x1p-30f, subnormal = std::bit_cast<float>(0x100u);
  return one + little == 1 && std::bit_cast<uint32_t>(subnormal * one) == 0x100u;
}

}  // namespace sluice
