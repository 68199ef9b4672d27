// How fast a machine is: what predictions start from. Plain values: measured (engine/machine_probe.h), read from a
// file, or taken from data sheets.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// GB/s are 10^9 bytes a second. What is 0 takes no time where it is a latency, and has not been said where it is a
// speed.
struct MachineSpeeds {
  // All drives of the store together: one way alone, and the sum of both while reads and writes take turns.
  double read_gb_per_s = 0, write_gb_per_s = 0, mixed_gb_per_s = 0;
  int drives = 0;  // how many these are the speeds of; 0: not said
  double upload_gb_per_s = 0, download_gb_per_s = 0;
  double update_ns_per_element = 0;        // of all update threads together, without checksums
  double summed_ns_per_element = 0;        // the same with every plane summed, as it comes and as it goes
  double out_of_place_ns_per_element = 0;  // as the first, written to other memory than is read
  double checksum_gb_per_s = 0;       // of one thread; in an update too where summed_ns_per_element has not been said
  double close_gb_per_s = 0;          // of fp32 gradients that are read
  double device_update_gb_per_s = 0;  // of what the device's updates read and write; 0: host's update threads do them
  double compute_tflop_per_s = 0;     // where visits are not timed
  double commit_ms = 0;               // a commit's table, superblock and flushes
  double transfer_us = 0;             // of a transfer alone on its drive, beside its bytes
  // What a transfer takes of its direction beside its bytes, with others under way: a request of each drive. Of one
  // that has kSpeedsBlockBytes for each drive the speeds have it.
  double read_request_us = 0, write_request_us = 0;
  double hop_us = 0;  // from a hop's end to the start of those that waited for it: of the host's threads

  // The host's CPU. Where host memory plays the device, compute and copies use it too.
  int update_threads = 1;
  double cores = 1;
  double compute_cores = 0;  // while a visit computes
  double copy_cores = 0;     // of one copy under way, or while a gradient closes

  static constexpr int64_t kSpeedsBlockBytes = int64_t{1} << 20;

  bool operator==(const MachineSpeeds&) const = default;
  // The drives' speeds, times so many.
  void scale_drives(double times);
  // Throws ConfigError naming the first value that is not a number above 0; summed_ns_per_element,
  // out_of_place_ns_per_element, compute_tflop_per_s, the device's updates, latencies and the cores of compute and
  // copies may be 0, and these no more than there are.
  void validate() const;
};

// Every value but the whole numbers, by its name.
struct MachineField {
  std::string_view name;
  double MachineSpeeds::*value;
  enum class Least { kAboveZero, kZero } least;
};
std::span<const MachineField> machine_fields();

// One visit's turn for one micro-batch, alone on the machine. A sink has no forward of its own in training.
struct VisitTime {
  double forward_ms = 0, backward_ms = 0;
  // Where the forward keeps its graph, and the backward need not compute it again.
  double keeping_forward_ms = 0, kept_backward_ms = 0;
  bool operator==(const VisitTime&) const = default;
};

// A machine running a model.
struct StepSpeeds {
  MachineSpeeds machine;
  std::vector<VisitTime> visits;  // as many as the model has
  bool operator==(const StepSpeeds&) const = default;
};

}  // namespace sluice
