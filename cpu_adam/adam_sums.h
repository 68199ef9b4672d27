// The update with checksums taken on the way, so that a record's bytes pass through a core once: what comes is summed
// as the update reads it, what goes as it is written. Pure functions on the caller's memory, as those of adam.h.
#pragma once
#include <cstdint>
#include <string_view>

#include "cpu_adam/adam.h"

namespace sluice {

// Running CRC32C (core/checksum.h), which a pass over a range of elements continues: calls for ranges that follow each
// other sum the whole plane. What is null is not summed. `state` points to one sum for each plane of a state record, in
// the record's order (core/dtype.h): residual or master, then the moments of the step's kind.
struct AdamSums {
  uint32_t* weights_in = nullptr;  // as the pass finds them
  uint32_t* state_in = nullptr;
  uint32_t* gradient_in = nullptr;
  uint32_t* weights_out = nullptr;  // as it leaves them
  uint32_t* state_out = nullptr;
};
constexpr bool takes_none(const AdamSums& sums) {
  return !sums.weights_in && !sums.state_in && !sums.gradient_in && !sums.weights_out && !sums.state_out;
}

// Updates as the AdamKernel of its format does, to the bit, and sums. Non-finite values end neither.
using SummingAdamKernel = Finite (*)(const AdamStep& step, const AdamPlanes& planes, int64_t elements,
                                     const AdamSums& sums);

// The best one for this CPU: from AVX3_DL on, sums are folded in registers beside the update; else update_in_tiles
// does it.
SummingAdamKernel summing_adam_simd(AdamFormat format);
// Of one of adam_simd_targets() (null if unknown), for tests and benchmarks.
SummingAdamKernel summing_adam_simd_for(AdamFormat format, std::string_view target);

// Any kernel, with core/checksum.h before and after it, in tiles that stay in a core's own cache.
Finite update_in_tiles(AdamKernel kernel, AdamFormat format, const AdamRun& run, const AdamSums& sums);

}  // namespace sluice
