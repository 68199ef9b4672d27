// Which backend and block size move bytes fastest here: tried on scratch files, with the memory that will be used.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "swap/bare_io.h"
#include "swap/io_queue.h"

namespace sluice {

struct IoSettings {
  IoBackend backend = IoBackend::kUring;
  int64_t block_bytes = int64_t{1} << 20;
  int depth = 64;
};
// Medians over the rounds.
struct IoTrial {
  IoSettings settings;
  DriveSpeed speed;
};

struct IoProbeOptions {
  std::vector<std::filesystem::path> folders;  // all drives at once
  std::vector<IoSettings> candidates;          // the first wins unless another's median is more than 5 % above its own
  std::span<std::byte> memory;                 // scratch, divided between the drives; aligned to 4096
  int64_t scratch_bytes = int64_t{64} << 20;  // file on each drive; and what a round moves at the most, each way, twice
  // For all together, about, but for a first pass through whole files. Three rounds fit, each of all candidates in
  // turn; where drives are so slow that they would not, two or one are made.
  int64_t limit_ns = 2'000'000'000;
  IoQueueFactory make_queue = make_io_queue;
  const StoreWords* words = &kPlainWords;
  Clock clock = now_ns;
};
struct IoProbe {
  std::vector<IoTrial> trials;  // that ran: a backend that is not there has none, nor a block that does not fit
  size_t best = 0;
};
// Blocking. Throws IoError where no candidate can run: the first backend's that refused, or that no block fits.
IoProbe probe_io(const IoProbeOptions& options);

// "io_uring, blocks of 1 MiB, depth 64: reads 4.1, writes 9.2 GB/s"
std::string describe(const IoTrial& trial);

}  // namespace sluice
