// How much device memory a GPT-2's compute needs: measured, or by a closed form.
#pragma once
#include <cstdint>
#include <vector>

#include "models/gpt2_visits.h"

namespace sluice {

struct Gpt2Probe {
  Gpt2Visits& visits;
  const Gpt2Options& options;
  int64_t estimate_bytes = 0;  // sizes the address space that is measured in
};
// Runs every pass of one micro-batch through each kind of visit (Gpt2Layout::first_like), on values that are all zero,
// with an allocator that counts, and once more where forwards keep their graphs. On the host weights and boundary
// tensors are mappings that are never written (boundary outputs aside), so they cost no memory; on a GPU they take
// theirs, and give it back.
ComputeMemory measure_gpt2_memory(const Gpt2Probe& probe);

int64_t estimate_gpt2_workspace(const Gpt2Config& config, const Gpt2Options& options);
std::vector<int64_t> estimate_gpt2_graphs(const Gpt2Layout& layout, const Gpt2Config& config,
                                          const Gpt2Options& options);

}  // namespace sluice
