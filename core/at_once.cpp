#include "core/at_once.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

namespace sluice {

int half_of_the_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 2)); }

void at_once(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  std::vector<std::future<void>> workers;
  try {
    while (workers.size() < std::min(count, static_cast<size_t>(threads)))
      workers.push_back(std::async(std::launch::async, run));
  } catch (const std::system_error&) {  // no more threads
    if (workers.empty()) run();
  }
  for (std::future<void>& each : workers) each.get();
}

}  // namespace sluice
