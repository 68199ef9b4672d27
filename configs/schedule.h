// The learning rate of each step, as DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR give it. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

enum class ScheduleKind : uint8_t { kConstant, kWarmup, kWarmupDecay, kWarmupCosine };
enum class WarmupShape : uint8_t { kLog, kLinear };

std::string_view name_of(ScheduleKind kind);  // "WarmupLR", ...; kConstant has none
std::optional<ScheduleKind> schedule_named(std::string_view name);

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  WarmupShape shape = WarmupShape::kLog;
  double min_lr = 0, max_lr = 1e-3;        // kWarmup, kWarmupDecay
  double min_ratio = 0, end_ratio = 1e-4;  // kWarmupCosine: times `constant`, as the warm-up begins and at the end
  int64_t warmup_steps = 1000;
  int64_t total_steps = 0;  // kWarmupDecay, kWarmupCosine: where the decay ends
  bool operator==(const ScheduleConfig&) const = default;
};

// The rate of the step after `applied` applied steps (skipped ones do not count). Source: DeepSpeed 0.19.5,
// deepspeed/runtime/lr_schedules.py, whose schedulers set a first rate when they are made and are stepped after every
// applied step (engine.py, _take_model_step). At their iteration k = applied - 1, with w = max(2, warmup_steps):
//   kConstant      constant
//   kWarmup        min + (max - min) * g: g = 0 at k = -1; below w log(k + 1) / log(w), or k / w if linear; then 1
//   kWarmupDecay   the same, but then g = (total - k) / max(1, total - w), never below 0
//   kWarmupCosine  constant * r: r = 0 at k = -1; below w min_ratio + (1 - min_ratio) * g; then
//                  end_ratio + (1 - end_ratio) * (1 + cos(pi * p)) / 2, p = (k - w + 1) / max(1, total - w), 1 at most
// So the first two steps have the least rate (kWarmupCosine: 0, and then that of min_ratio).
double learning_rate_at(const ScheduleConfig& schedule, double constant, int64_t applied);
// The rate that all further steps have, where a run of so many steps goes on after the schedule has ended.
std::optional<double> rate_after_end(const ScheduleConfig& schedule, double constant, int64_t steps);

}  // namespace sluice
