#include "cpu_adam/adam_out_of_place.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

// About 26 bytes an element with the gradient.
constexpr int64_t kCopiedElements = 8192;
constexpr uintptr_t kLineBytes = 64;

template <typename Element>
void copy_plane(const Element* from, Element* to, int64_t elements) {
  if (from) std::memcpy(to, from, static_cast<size_t>(elements) * sizeof(Element));
}

void copy_planes(AdamFormat format, const AdamRun& run, const AdamPlanes& to) {
  const AdamPlanes& from = run.planes;
  copy_plane(from.weights, to.weights, run.elements * bytes_of(weights_dtype(format.precision)));
  copy_plane(from.residual, to.residual, run.elements);
  copy_plane(from.master, to.master, run.elements);
  copy_plane(from.moment1, to.moment1, run.elements);
  copy_plane(from.moment2, to.moment2, run.elements);
  copy_plane(from.half_moment1, to.half_moment1, run.elements);
  copy_plane(from.half_moment2, to.half_moment2, run.elements);
}

bool begin_lines(const AdamPlanes& planes) {
  const void* const all[] = {planes.weights, planes.residual,     planes.master,      planes.moment1,
                             planes.moment2, planes.half_moment1, planes.half_moment2};
  return std::ranges::all_of(all, [](const void* at) { return reinterpret_cast<uintptr_t>(at) % kLineBytes == 0; });
}

}  // namespace

Finite update_copies(AdamKernel kernel, AdamFormat format, const AdamRun& run, const AdamPlanes& to) {
  Finite finite = Finite::kYes;
  for (int64_t first = 0; first < run.elements; first += kCopiedElements) {
    const AdamRun tile{run.step, planes_at(run.planes, format, first), std::min(kCopiedElements, run.elements - first)};
    AdamPlanes there = planes_at(to, format, first);
    copy_planes(format, tile, there);
    there.gradient = tile.planes.gradient;
    there.element = tile.planes.element;
    if (kernel(tile.step, there, tile.elements) == Finite::kNo) finite = Finite::kNo;
  }
  return finite;
}

int64_t elements_before_a_line(AdamFormat format, const AdamPlanes& planes) {
  constexpr auto kElementsOfALine = static_cast<int64_t>(kLineBytes);  // of whatever type, or fewer
  for (int64_t first = 0; first < kElementsOfALine; ++first) {
    if (begin_lines(planes_at(planes, format, first))) return first;
  }
  return INT64_MAX;
}

}  // namespace sluice
