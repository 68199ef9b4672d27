// Threads that are started, or refused in words.
#pragma once
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice {

// Throws IoError: what could not be started, and how to have more threads; `or_else`: another way out.
[[noreturn]] void refuse_thread(std::string_view what, const std::system_error& why, std::string_view or_else = {});

// `what`: for people, as in "a thread for the update". Throws as above.
template <class Work>
std::thread start_thread(std::string_view what, Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& why) {
    refuse_thread(what, why);
  }
}

}  // namespace sluice
