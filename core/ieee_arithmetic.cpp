#include "core/ieee_arithmetic.h"

namespace sluice {

// The default environment of the C library has neither flush-to-zero nor denormals-are-zero.
IeeeArithmetic::IeeeArithmetic() noexcept {
  std::fegetenv(&before_);
  std::fesetenv(FE_DFL_ENV);
}
IeeeArithmetic::~IeeeArithmetic() { std::fesetenv(&before_); }

}  // namespace sluice
