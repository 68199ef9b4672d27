// Drives in simulated time: each file has a bandwidth and serves its requests one after the other, no bytes move, and
// waiting moves the clock on. So what a schedule costs can be asserted exactly.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "swap/io_queue.h"

namespace sluice {

struct SimulatedDrives {
  // By the order in which files are first met, in bytes a nanosecond (GB/s). Files beyond the last are as fast as that.
  std::vector<double> gb_per_s = {1};

  // What happened so far.
  double now_ns = 0;
  struct Served {
    IoOp op;
    int drive;
    int64_t bytes;
    double submitted_ns, ended_ns;
    const void* memory;
    int64_t offset;
  };
  std::vector<Served> served;  // in the order of their ends
};

IoQueueFactory simulated_drives_factory(std::shared_ptr<SimulatedDrives> drives);

}  // namespace sluice
