// System calls that a signal has interrupted.
#pragma once
#include <cerrno>

namespace sluice {

// Makes a call that returns -1 and sets errno where it fails, again as long as a signal has interrupted it.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace sluice
