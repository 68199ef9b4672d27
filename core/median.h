// The median of what was measured several times.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/errors.h"

namespace sluice {

// Of an even number of values the mean of the two in the middle. None is a programmer's error.
inline double median(std::vector<double> values) {
  SLUICE_CHECK(!values.empty(), "a median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice
