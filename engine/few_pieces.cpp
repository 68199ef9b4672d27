#include "engine/few_pieces.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

namespace sluice {
namespace {

constexpr int kFewMicroBatches = 8;

void take_larger_chunks(FewPieces& pieces) {
  PlanOptions& options = pieces.options;
  const std::vector<PartitionSpec>& partitions = pieces.model.partitions;
  const Planner planner(pieces.model, options);
  const int64_t elements = planner.chunk_elements(options.host_bytes);
  const Geometry whole(partitions, std::numeric_limits<int64_t>::max() / 2);
  const auto few = std::max(kFewChunks, 2 * static_cast<int64_t>(partitions.size()));
  int64_t larger = elements;
  while (count_chunks(whole.partitions(), larger) > few) larger *= 2;
  if (larger == elements) return;
  options.chunk_elements = larger;
  options.host_bytes += planner.ring_buffer_bytes(larger) - planner.ring_buffer_bytes(elements);
  pieces.fewer = true;
}

// What a turn passes through the device's boundary ring at the most: the tensors of a visit.
int64_t boundary_bytes(const ModelSpec& model) {
  int64_t most = 0;
  for (const VisitSpec& visit : model.visits) {
    int64_t bytes = 0;
    for (const auto* list : {&visit.takes, &visit.gives}) {
      for (const int tensor : *list) bytes += model.tensors[tensor].bytes();
    }
    most = std::max(most, bytes);
  }
  return most;
}

void merge_micro_batches(FewPieces& pieces) {
  PlanOptions& options = pieces.options;
  if (options.micro_batches <= 2 * kFewMicroBatches) return;
  const double times = static_cast<double>(options.micro_batches) / kFewMicroBatches;
  const auto grow = [times](auto& value) { value = static_cast<std::decay_t<decltype(value)>>(times * value); };
  const int64_t passing = boundary_bytes(pieces.model);
  for (TensorSpec& tensor : pieces.model.tensors) grow(tensor.elements);
  options.device_bytes += Planner::kBoundaryBuffers * (boundary_bytes(pieces.model) - passing);
  options.micro_batches = kFewMicroBatches;
  for (int64_t& bytes : options.graph_bytes) grow(bytes);
  for (VisitTime& visit : options.speeds->visits) {
    for (double* ms : {&visit.forward_ms, &visit.backward_ms, &visit.keeping_forward_ms, &visit.kept_backward_ms}) {
      grow(*ms);
    }
  }
  pieces.fewer = true;
}

}  // namespace

int64_t count_chunks(std::span<const Partition> partitions, int64_t chunk_elements) {
  int64_t count = 0;
  for (const Partition& each : partitions) count += (each.elements + chunk_elements - 1) / chunk_elements;
  return count;
}

FewPieces in_few_pieces(const ModelSpec& model, const PlanOptions& options) {
  FewPieces few{model, options};
  take_larger_chunks(few);
  merge_micro_batches(few);
  return few;
}

}  // namespace sluice
