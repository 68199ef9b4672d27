#include "offload/host_sums.h"

#include <algorithm>

#include "core/errors.h"

namespace sluice {

// To the ring's end at most.
int64_t HostSums::room() {
  const std::lock_guard lock(mutex_);
  if (part_count_.taken - part_count_.added == kMostParts) return 0;
  const size_t free = ring_.size() - (place_count_.taken - place_count_.added);
  return static_cast<int64_t>(std::min(free, ring_.size() - place_count_.taken % ring_.size()));
}

double* HostSums::take(double* sum, int64_t count, uint64_t number) {
  SLUICE_CHECK(count <= room(), "more numbers than there are places");
  const std::lock_guard lock(mutex_);
  double* const numbers = &ring_[place_count_.taken % ring_.size()];
  parts_[part_count_.taken++ % kMostParts] = {sum, numbers, static_cast<size_t>(count), number};
  place_count_.taken += static_cast<size_t>(count);
  return numbers;
}

void HostSums::add_up(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (; part_count_.added < part_count_.taken; ++part_count_.added) {
    const Part& part = parts_[part_count_.added % kMostParts];
    if (part.number > number) return;
    double sum = *part.sum;
    for (size_t i = 0; i < part.count; ++i) sum += part.numbers[i];
    *part.sum = sum;
    place_count_.added += part.count;
  }
}

}  // namespace sluice
