// A model and its options in fewer pieces, for choices between plans. Internal to engine/.
#pragma once
#include <cstdint>
#include <span>

#include "core/geometry.h"
#include "engine/model.h"
#include "engine/planner.h"

namespace sluice {

constexpr int64_t kFewChunks = 512;  // plans of which are made soon

// How many chunks of that size these come to.
int64_t count_chunks(std::span<const Partition> partitions, int64_t chunk_elements);

// With many chunks or micro-batches a plan takes seconds. Choices between plans are made on fewer and larger ones,
// whose bytes and times are the same together, with as much more memory as the rings' larger buffers then take. The
// options have speeds.
struct FewPieces {
  ModelSpec model;
  PlanOptions options;
  bool fewer = false;  // than there are; else both are as they were
};
FewPieces in_few_pieces(const ModelSpec& model, const PlanOptions& options);

}  // namespace sluice
