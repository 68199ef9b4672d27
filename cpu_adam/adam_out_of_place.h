// The update of records that may have to stay as they were: what it makes of them goes to other memory. Pure functions
// on the caller's memory, as those of adam.h.
#pragma once
#include <cstdint>
#include <string_view>

#include "cpu_adam/adam.h"

namespace sluice {

// Writes to the planes of `to` what the AdamKernel of its format would leave in those of `from`, to the bit; these
// stay. They do not overlap. Gradient and element are those of `from`. What `to` has in whole cache lines is written
// past the caches: in place an update writes what it has read, and here it would have to read what it writes.
using OutOfPlaceAdamKernel = Finite (*)(const AdamStep& step, const AdamPlanes& from, const AdamPlanes& to,
                                        int64_t elements);

OutOfPlaceAdamKernel out_of_place_adam_simd(AdamFormat format);
// Of one of adam_simd_targets() (null if unknown), for tests and benchmarks.
OutOfPlaceAdamKernel out_of_place_adam_simd_for(AdamFormat format, std::string_view target);

// Any kernel, on a copy of the run's planes, in tiles that stay in a core's own cache.
Finite update_copies(AdamKernel kernel, AdamFormat format, const AdamRun& run, const AdamPlanes& to);
// Of a range, the first elements, behind which each of its planes begins a cache line; INT64_MAX where they never do at
// once.
int64_t elements_before_a_line(AdamFormat format, const AdamPlanes& planes);

}  // namespace sluice
