#include "cpu_adam/adam_sums.h"

#include <algorithm>

#include "core/checksum.h"

namespace sluice {
namespace {

// About 26 bytes an element with the gradient.
constexpr int64_t kTileElements = 8192;

void add(uint32_t& sum, const void* plane, int64_t bytes) {
  sum = crc32c(sum, {static_cast<const std::byte*>(plane), static_cast<size_t>(bytes)});
}

void add_weights(uint32_t* sum, AdamFormat format, const AdamRun& tile) {
  if (sum) add(*sum, tile.planes.weights, tile.elements * bytes_of(weights_dtype(format.precision)));
}

void add_state(uint32_t* sums, AdamFormat format, const AdamRun& tile) {
  if (!sums) return;
  const AdamPlanes& planes = tile.planes;
  if (format.precision == Precision::kBf16) add(*sums++, planes.residual, tile.elements * 2);
  if (format.precision == Precision::kFp16) add(*sums++, planes.master, tile.elements * 4);
  const bool halves = format.moments == DType::kBf16;
  const int64_t bytes = tile.elements * bytes_of(format.moments);
  if (halves) {
    add(*sums++, planes.half_moment1, bytes);
  } else {
    add(*sums++, planes.moment1, bytes);
  }
  if (moments_of(optimizer_of(tile.step.kind)) < 2) return;
  if (halves) {
    add(*sums, planes.half_moment2, bytes);
  } else {
    add(*sums, planes.moment2, bytes);
  }
}

}  // namespace

Finite update_in_tiles(AdamKernel kernel, AdamFormat format, const AdamRun& run, const AdamSums& sums) {
  Finite finite = Finite::kYes;
  for (int64_t first = 0; first < run.elements; first += kTileElements) {
    const AdamRun tile{run.step, planes_at(run.planes, format, first), std::min(kTileElements, run.elements - first)};
    add_weights(sums.weights_in, format, tile);
    add_state(sums.state_in, format, tile);
    if (sums.gradient_in) add(*sums.gradient_in, tile.planes.gradient, tile.elements * bytes_of(format.gradient));
    if (kernel(tile.step, tile.planes, tile.elements) == Finite::kNo) finite = Finite::kNo;
    add_weights(sums.weights_out, format, tile);
    add_state(sums.state_out, format, tile);
  }
  return finite;
}

}  // namespace sluice
