// How much device memory a GPT-2's compute needs: measured, or by a closed form.
#pragma once
#include <cstdint>
#include <vector>

#include "core/geometry.h"
#include "libtorch/stand_in_turn.h"
#include "models/gpt2_visits.h"

namespace sluice {

struct Gpt2Probe {
  Gpt2Visits& visits;
  const Gpt2Options& options;
  int64_t estimate_bytes = 0;  // sizes the address space that is measured in
};
// What stands in for an engine: its geometry, and the turn of a visit in it.
Geometry geometry_of(const Gpt2Probe& probe);
StandInTurn::Of turn_of(const Gpt2Probe& probe, const Geometry& geometry, int visit);

// Runs every pass of one micro-batch through each kind of visit (Gpt2Layout::first_like), on values that are all zero,
// with an allocator that counts, and once more where forwards keep their graphs. On the host weights and boundary
// tensors are mappings that are never written (boundary outputs aside), so they cost no memory; on a GPU they take
// theirs, and give it back.
ComputeMemory measure_gpt2_memory(const Gpt2Probe& probe);
// What that takes of the device's memory meanwhile: at the most, as far as the closed form tells.
int64_t bytes_to_measure_gpt2(const Gpt2Probe& probe);

// The closed form is within 15 % of what is measured for most models, and within 30 for the smallest.
constexpr int64_t with_closed_form_margin(int64_t bytes) { return bytes + bytes * 3 / 10; }
int64_t estimate_gpt2_workspace(const Gpt2Config& config, const Gpt2Options& options);
std::vector<int64_t> estimate_gpt2_graphs(const Gpt2Layout& layout, const Gpt2Config& config,
                                          const Gpt2Options& options);

}  // namespace sluice
