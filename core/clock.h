// Monotonic time in nanoseconds.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

namespace sluice {

using Clock = std::function<int64_t()>;  // now_ns, or a simulation's

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace sluice
