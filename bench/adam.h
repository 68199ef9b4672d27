// What `sluice bench adam` measures: the update on memory far larger than the caches, beside the best stream over the
// same planes with the same threads in the same call. Rows and ceilings take turns, chunk-sized tasks on the update
// team; medians. Not thread-safe: one measurement at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace sluice {

constexpr int64_t kLeastAdamBenchElements = 4096;
struct AdamBenchOptions {
  int64_t elements = int64_t{32} << 20;
  int threads = 0;  // 0: one for each of usable_cores()
  Precision precision = Precision::kBf16;
  DType moments = DType::kFp32;  // or kBf16, as `sluice.state_dtype` has it
  std::string isa = "auto";      // or one of adam_bench_isas()
};

struct AdamRow {
  double ns_per_param = 0;
  double gb_per_s = 0;  // of the bytes that the algorithm must move: bf16 26 B a parameter, 18 B with moments in bf16
  double percent_of_ceiling = 0;
};

struct AdamBench {
  std::string isa;
  int threads = 0;
  int64_t elements = 0;
  double stream_gb_per_s = 0;       // read-modify-write in place, plane after plane
  double triad_gb_per_s = 0;        // a = b + s * c
  double past_caches_gb_per_s = 0;  // the same, with stores that pass the caches by
  double ceiling_gb_per_s = 0;      // the best of them
  AdamRow plain;
  AdamRow with_checksum;  // of the records as they go
  AdamRow verified;       // and of records and gradient as they come
};

// What lies around the pass, for people.
struct AdamSurroundings {
  double in_cache_ns = 0;  // per parameter, one thread, 2 MiB of planes that were just there
  double bound_ns = 0;     // of the two divisions and the square root alone, in registers
  double small_pages_ns = 0, first_touch_ns = 0;
  double percent_of_ideal_split = 0;  // chunks of different sizes
  double first_chunk_ms = 0, all_chunks_ms = 0;
  double checksum_l1_gb_per_s = 0, checksum_l2_gb_per_s = 0, checksum_memory_gb_per_s = 0;  // one thread
  struct Gradient {
    std::string kernel;
    double ns_per_param = 0, gb_per_s = 0, percent_of_ceiling = 0;
  };
  std::vector<Gradient> gradients;  // add_gradient and close_gradient of the precision's weights type
};

// Names that `isa` may have on this CPU, "auto" first, best first then, "scalar" (the reference) last.
std::vector<std::string> adam_bench_isas();
// Throws ConfigError for an isa that is not there, fewer than 4096 elements, or more than memory is available for.
AdamBench measure_adam(const AdamBenchOptions& options);
AdamSurroundings measure_adam_surroundings(const AdamBenchOptions& options, double ceiling_gb_per_s);

}  // namespace sluice
