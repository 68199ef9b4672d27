#include "configs/schedule.h"

#include <algorithm>
#include <cmath>

namespace sluice {

double learning_rate_at(const ScheduleConfig& schedule, double constant, int64_t applied) {
  if (schedule.kind == ScheduleKind::kConstant) return constant;
  const auto step = static_cast<double>(applied), warmup = static_cast<double>(schedule.warmup_steps);
  double share = 1;
  if (applied < schedule.warmup_steps) {
    const bool linear = schedule.shape == WarmupShape::kLinear || schedule.warmup_steps < 2;
    share = linear ? (step + 1) / warmup : std::log(step + 1) / std::log(warmup);
  } else if (schedule.kind == ScheduleKind::kWarmupDecay) {
    const auto total = static_cast<double>(schedule.total_steps);
    share = std::max(0.0, (total - step) / std::max(1.0, total - warmup));
  }
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * share;
}

}  // namespace sluice
