#include "engine/probe_time.h"

#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/median.h"

namespace sluice {

double median_ns(int64_t limit_ns, const std::function<void()>& work) {
  work();
  std::vector<double> runs;
  const int64_t begin = now_ns();
  while (runs.size() < 3 || now_ns() - begin < limit_ns) {
    const int64_t from = now_ns();
    work();
    runs.push_back(static_cast<double>(now_ns() - from));
  }
  return median(std::move(runs));
}

}  // namespace sluice
