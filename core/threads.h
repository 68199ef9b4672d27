// Threads that are started, or refused in words.
#pragma once
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "core/ieee_arithmetic.h"

namespace sluice {

// Throws IoError: what could not be started, and how to have more threads; `or_else`: another way out.
[[noreturn]] void refuse_thread(std::string_view what, const std::system_error& why, std::string_view or_else = {});

// `what`: for people, as in "a thread for the update". `work` has IEEE arithmetic, whatever the caller computes by.
// Throws as above.
template <class Work>
std::thread start_thread(std::string_view what, Work&& work) {
  try {
    return std::thread([work = std::forward<Work>(work)]() mutable {
      const IeeeArithmetic arithmetic;
      work();
    });
  } catch (const std::system_error& why) {
    refuse_thread(what, why);
  }
}

}  // namespace sluice
