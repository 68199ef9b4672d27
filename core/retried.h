// System calls that a signal has interrupted, or that moved a part.
#pragma once
#include <cerrno>
#include <cstddef>
#include <string_view>

namespace sluice {

// Makes a call that returns -1 and sets errno where it fails, again as long as a signal has interrupted it.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

// Calls `write`, which takes what is left as write(2) does, until all is written. False: `left` could not be, for the
// reason in errno; 0: no byte of it was taken, and no error given.
template <typename Write>
bool write_whole(std::string_view& left, const Write& write) {
  while (!left.empty()) {
    const auto moved = retried([&] { return write(left); });
    if (moved == 0) errno = 0;
    if (moved <= 0) return false;
    left.remove_prefix(static_cast<size_t>(moved));
  }
  return true;
}

}  // namespace sluice
