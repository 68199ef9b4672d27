#include "engine/probe_time.h"

#include <utility>
#include <vector>

#include "core/median.h"

namespace sluice {

double median_ns(int64_t limit_ns, const std::function<void()>& work, const Clock& clock) {
  work();
  std::vector<double> runs;
  const int64_t begin = clock();
  while (runs.size() < 3 || clock() - begin < limit_ns) {
    const int64_t from = clock();
    work();
    runs.push_back(static_cast<double>(clock() - from));
  }
  return median(std::move(runs));
}

}  // namespace sluice
