// Runs the blocks of a device's kernel on the host.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "offload/device_kernels.h"

namespace sluice {

// Threads one after another; on their way back to the first, which no kernel may notice.
class HostBlock {
 public:
  explicit HostBlock(int64_t number) : number_(number) {}
  int64_t number() const { return number_; }
  template <class Work>
  void threads(const Work& work) const {
    for (int thread = kernels::kBlockThreads - 1; thread >= 0; --thread) work(thread);
  }

 private:
  int64_t number_;
};

// Calls run(block) for every block of a launch in an order of its own.
template <class Run>
void launch(int64_t blocks, uint64_t seed, const Run& run) {
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, std::mt19937_64(seed));
  for (const int64_t number : order) run(HostBlock(number));
}

}  // namespace sluice
