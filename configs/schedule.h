// The learning rate of each step, as the incumbent's WarmupLR and WarmupDecayLR define it. Pure functions.
#pragma once
#include <cstdint>

namespace sluice {

enum class ScheduleKind : uint8_t { kConstant, kWarmup, kWarmupDecay };
enum class WarmupShape : uint8_t { kLog, kLinear };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  WarmupShape shape = WarmupShape::kLog;
  double min_lr = 0, max_lr = 1e-3;
  int64_t warmup_steps = 1000;
  int64_t total_steps = 0;  // kWarmupDecay: where the rate reaches min_lr
  bool operator==(const ScheduleConfig&) const = default;
};

// The rate of the step after `applied` applied steps (skipped ones do not count). Warm-up, s = applied + 1 of
// warmup_steps: min + (max - min) * s / warmup_steps, or * log(s) / log(warmup_steps). Then max; or, decaying,
// min + (max - min) * (total - applied) / (total - warmup_steps), never below min. kConstant: `constant`.
double learning_rate_at(const ScheduleConfig& schedule, double constant, int64_t applied);

}  // namespace sluice
