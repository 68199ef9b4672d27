#include "configs/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace sluice {
namespace {

constexpr ScheduleKind kNamed[] = {ScheduleKind::kWarmup, ScheduleKind::kWarmupDecay, ScheduleKind::kWarmupCosine};

int64_t warmup_of(const ScheduleConfig& schedule) { return std::max<int64_t>(2, schedule.warmup_steps); }

// The steps over which the rate falls.
double decay_steps(const ScheduleConfig& schedule) {
  return std::max(1.0, static_cast<double>(schedule.total_steps - warmup_of(schedule)));
}

// Of the warm-up, at iteration k from 0 to below its end.
double warmup_share(const ScheduleConfig& schedule, int64_t k) {
  const auto step = static_cast<double>(k), warmup = static_cast<double>(warmup_of(schedule));
  return schedule.shape == WarmupShape::kLinear ? step / warmup : 1 / std::log(warmup) * std::log(step + 1);
}

double ratio_at(const ScheduleConfig& schedule, int64_t k) {
  if (k < 0) return 0;
  if (k < warmup_of(schedule)) return schedule.min_ratio + (1 - schedule.min_ratio) * warmup_share(schedule, k);
  const auto step = static_cast<double>(k - warmup_of(schedule) + 1);
  const double cosine = std::cos(std::numbers::pi * std::min(1.0, step / decay_steps(schedule)));
  return schedule.end_ratio + (1 - schedule.end_ratio) * (1 + cosine) / 2;
}

double share_at(const ScheduleConfig& schedule, int64_t k) {
  if (k < 0) return 0;
  if (k < warmup_of(schedule)) return warmup_share(schedule, k);
  if (schedule.kind == ScheduleKind::kWarmup) return 1;
  return std::max(0.0, static_cast<double>(schedule.total_steps - k) / decay_steps(schedule));
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  constexpr std::string_view kNames[] = {"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<ScheduleKind> schedule_named(std::string_view name) {
  const auto* const kind = std::ranges::find(kNamed, name, [](ScheduleKind each) { return name_of(each); });
  return kind == std::end(kNamed) ? std::nullopt : std::optional(*kind);
}

double learning_rate_at(const ScheduleConfig& schedule, double constant, int64_t applied) {
  if (schedule.kind == ScheduleKind::kConstant) return constant;
  const int64_t k = applied - 1;
  if (schedule.kind == ScheduleKind::kWarmupCosine) return constant * ratio_at(schedule, k);
  return schedule.min_lr + (schedule.max_lr - schedule.min_lr) * share_at(schedule, k);
}

std::optional<double> rate_after_end(const ScheduleConfig& schedule, double constant, int64_t steps) {
  const bool ends = schedule.kind == ScheduleKind::kWarmupDecay || schedule.kind == ScheduleKind::kWarmupCosine;
  if (!ends || steps - 1 <= schedule.total_steps) return std::nullopt;  // the first step has no place in it
  return learning_rate_at(schedule, constant, schedule.total_steps + 1);
}

}  // namespace sluice
