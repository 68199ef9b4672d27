// Something measured in steps, of which some had a commit beside them.
#pragma once
#include <numeric>
#include <vector>

#include "core/errors.h"

namespace sluice {

inline double mean(const std::vector<double>& values) {
  SLUICE_CHECK(!values.empty(), "a mean of nothing");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct IntervalSteps {
  std::vector<double> committing, others;
  // Of a step where every `interval`-th commits, however many of them were measured.
  double mean(int interval) const {
    if (others.empty() || committing.empty()) return sluice::mean(others.empty() ? committing : others);
    const double without = sluice::mean(others);
    return without + (sluice::mean(committing) - without) / interval;
  }
};

}  // namespace sluice
