// How long something takes on this machine, again and again for a while. For probes.
#pragma once
#include <cstdint>
#include <functional>

#include "core/clock.h"

namespace sluice {

// As every byte of a bf16, fp16 or fp32 it is a number near 0.01 or 1: what probes calculate with.
constexpr int kSmallValue = 0x3c;

// Of so long, and of three runs at least, after one that does not count; nanoseconds of the median run.
constexpr int64_t kProbeNs = 60'000'000;
double median_ns(int64_t limit_ns, const std::function<void()>& work, const Clock& clock = now_ns);

}  // namespace sluice
