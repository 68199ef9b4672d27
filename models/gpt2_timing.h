// How long a GPT-2's visits take: measured, one of each kind, or from the number of their operations.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/machine.h"
#include "models/gpt2_workspace.h"

namespace sluice {

// One micro-batch through one visit of each kind, again and again until are_enough_runs(): medians.
// Temporaries and graphs take what `memory` says, as measured. Takes memory for the weights, open gradients and
// boundary tensors of one visit, and of more of its kind up to 64 MiB, and gives it back.
std::vector<VisitTime> time_gpt2_visits(const Gpt2Probe& probe, const ComputeMemory& memory);
int64_t bytes_to_time_gpt2(const Gpt2Probe& probe, const ComputeMemory& memory);  // what it takes, of the device's

// A tenth of a second of them, and two at the least: the first warms up. Where one takes 5 s that is nothing beside it.
bool are_enough_runs(int64_t runs, int64_t took_ns);

// Matrix products alone, at this speed; a backward has the recomputation in it.
std::vector<VisitTime> estimate_gpt2_visits(const Gpt2Layout& layout, const Gpt2Config& config,
                                            const Gpt2Options& options, double tflop_per_s);

// Of the matrix products that measure_gpt2_memory() computes.
double gpt2_trial_flops(const Gpt2Layout& layout, const Gpt2Config& config, const Gpt2Options& options);

}  // namespace sluice
