// The floating-point arithmetic of a thread.
#pragma once
#include <cfenv>

namespace sluice {

// While it lives the calling thread computes as a process begins to: to nearest even, with subnormal numbers; then it
// has back what it had. Threads inherit their arithmetic, and whoever starts ours may have another one: by
// at::globalContext().setFlushDenormal(), or a library built with -ffast-math that it has loaded. Ends on the thread
// that it began on. Takes some ten nanoseconds.
class IeeeArithmetic {
 public:
  IeeeArithmetic() noexcept;
  ~IeeeArithmetic();
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace sluice
