// Plans of large models take seconds each: several at once, on half of the cores, for others may be at work or be
// measured.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <thread>
#include <vector>

namespace sluice {

// work(0) to work(count - 1), in any order, from several threads. What one of them throws is thrown here, once those
// under way have ended; no others begin then.
inline void at_once(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  };
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1, std::max<size_t>(count, 1));
  std::vector<std::future<void>> workers;
  while (workers.size() < threads) workers.push_back(std::async(std::launch::async, run));
  for (std::future<void>& each : workers) each.get();
}

}  // namespace sluice
