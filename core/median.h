// The median of what was measured several times.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice {

// Of an even number of values the mean of the two in the middle. Requires one value.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice
