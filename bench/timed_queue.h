// A queue that wraps a real one, notes how long every request took, and plays slower drives.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "swap/io_queue.h"

namespace sluice {

// Of requests in one direction, from their submission to their completion.
class Latencies {
 public:
  void add(int64_t ns) { microseconds_.push_back(static_cast<float>(ns) / 1e3f); }
  void add(const Latencies& others) {
    microseconds_.insert(microseconds_.end(), others.microseconds_.begin(), others.microseconds_.end());
  }
  void clear() { microseconds_.clear(); }
  double percentile(double percent) const;  // in microseconds; 0 where there were none

 private:
  std::vector<float> microseconds_;
};

struct RequestTimes {
  Latencies read, write;
};

// Files below folders[i], however it is spelled, move at most gb_per_s[i] (0: as fast as they can): one request after
// the other, as a drive of that bandwidth would serve them.
struct Throttle {
  std::vector<std::filesystem::path> folders;
  std::vector<double> gb_per_s;
};

// Queues of the factory write to `times`, which must outlive them.
IoQueueFactory timed_queue_factory(RequestTimes* times, Throttle throttle);

}  // namespace sluice
