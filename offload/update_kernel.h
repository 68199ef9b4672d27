// The optimizer's kernel, a block of threads at a time (device_kernels.h): core/adam_element.h for each element of a
// run.
#pragma once
#include "core/adam_element.h"
#include "offload/device_kernels.h"

namespace sluice::kernels {

constexpr int kUpdatedAtOnce = 4;  // elements of a thread, whose loads are all under way before the first is used

// A thread's elements of the tile that begins at element `tile`. Whether all that came out is finite.
template <Precision kPrecision, DType kGradient, DType kMoments, class Elements>
SLUICE_KERNEL bool update_elements(const AdamRun& run, int64_t tile, Elements elements, int thread) {
  bool finite = true;
  for (int first = thread; first < elements; first += kUpdatedAtOnce * kBlockThreads) {
    adam::StoredElement<kPrecision, kGradient, kMoments> before[kUpdatedAtOnce];
    const auto each = [&](const auto& call) { for_each_of<kUpdatedAtOnce, kBlockThreads>(first, elements, call); };
    each([&](int k, int i) { before[k].load(run.step, run.planes, tile + i); });
    each([&](int k, int i) {
      const adam::Element after = adam::updated(run.step, before[k].element());
      adam::store_element<kPrecision, kMoments>(run.step, run.planes, tile + i, after);
      finite = adam::is_finite<kPrecision>(after) && finite;
    });
  }
  return finite;
}

// *not_finite becomes 1 where a value came out so, and is left alone otherwise.
template <Precision kPrecision, DType kGradient, DType kMoments, class Block>
SLUICE_KERNEL void update_tile(const Block& block, const AdamRun& run, int* not_finite) {
  const ElementRange tile = tile_range(block.number(), run.elements);
  block.threads([&](int thread) {
    const bool finite = tile.elements == kTileElements
                            ? update_elements<kPrecision, kGradient, kMoments>(run, tile.first, WholeTile(), thread)
                            : update_elements<kPrecision, kGradient, kMoments>(run, tile.first, tile.elements, thread);
    if (!finite) *not_finite = 1;
  });
}

}  // namespace sluice::kernels
