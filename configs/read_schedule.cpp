#include "configs/read_schedule.h"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string>

#include "configs/keys.h"
#include "core/errors.h"

namespace sluice {
namespace {

constexpr std::string_view kRate = "optimizer.params.lr";

// Those of another type of scheduler.
void refuse_keys(const ConfigReader& reader, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const std::string path = fmt::format("scheduler.params.{}", key);
    if (const auto* value = reader.find(path)) reader.refuse(path, *value);
  }
}

// Where there is a largest rate of the schedule's own, the optimizer's does not count. DeepSpeed takes the optimizer's
// for null; WarmupDecayLR has a default where the key is left out.
void take_largest_rate(const ConfigReader& reader, RunConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  double& rate = config.optimizer.learning_rate;
  constexpr std::string_view kLargest = "scheduler.params.warmup_max_lr";
  const auto* largest = reader.find(kLargest);
  const bool is_auto = largest != nullptr && *largest == "auto";  // as the Trainer fills it in
  const bool has_default = schedule.kind == ScheduleKind::kWarmupDecay && !reader.is_null(kLargest);
  if (is_auto || (largest == nullptr && !has_default)) schedule.max_lr = rate;
  if (is_auto) {
    config.notes.push_back(
        fmt::format("\"{}\" \"auto\": {:g} is taken, the optimizer's rate", kLargest, schedule.max_lr));
  } else {
    reader.number(kLargest, schedule.max_lr, 0, kNoLimit);
  }
  if (reader.find(kRate) != nullptr && rate != schedule.max_lr) {
    config.notes.push_back(
        fmt::format("not needed: \"{}\" {:g}: a scheduler's rate is \"{}\", here {:g}, as in DeepSpeed", kRate, rate,
                    kLargest, schedule.max_lr));
  }
  rate = schedule.max_lr;
  for (ParamGroupConfig& group : config.param_groups) group.optimizer.learning_rate = rate;
}

}  // namespace

void read_schedule(const ConfigReader& reader, RunConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  const auto* section = reader.find("scheduler");
  if (section == nullptr || section->empty()) return;
  const auto* type = reader.find("scheduler.type");
  if (type == nullptr) reader.refuse_missing("scheduler.type");
  const std::optional<ScheduleKind> kind = type->is_string() ? schedule_named(type->get<std::string>()) : std::nullopt;
  if (!kind) reader.refuse("scheduler.type", *type);
  schedule.kind = *kind;
  const bool cosine = schedule.kind == ScheduleKind::kWarmupCosine, ends = schedule.kind != ScheduleKind::kWarmup;
  if (cosine) refuse_keys(reader, {"warmup_min_lr", "warmup_max_lr"});
  if (!cosine) refuse_keys(reader, {"warmup_min_ratio", "cos_min_ratio"});
  if (!ends) refuse_keys(reader, {"total_num_steps"});
  reader.choice<WarmupShape>("scheduler.params.warmup_type", schedule.shape,
                             {{"log", WarmupShape::kLog}, {"linear", WarmupShape::kLinear}});
  reader.number("scheduler.params.warmup_min_lr", schedule.min_lr, 0, kNoLimit);
  reader.number("scheduler.params.warmup_min_ratio", schedule.min_ratio, 0, kNoLimit);
  reader.number("scheduler.params.cos_min_ratio", schedule.end_ratio, 0, kNoLimit);
  constexpr std::string_view kWarmup = "scheduler.params.warmup_num_steps";
  reader.integer(kWarmup, schedule.warmup_steps, 0);
  constexpr std::string_view kTotal = "scheduler.params.total_num_steps";
  if (ends && reader.find(kTotal) == nullptr) reader.refuse_missing(kTotal);
  reader.integer(kTotal, schedule.total_steps, 1);
  if (ends && schedule.total_steps <= schedule.warmup_steps) {
    throw ConfigError(fmt::format("{}: \"{}\" is {}; allowed: {}; \"{}\" is {}{}", reader.name(), kTotal,
                                  schedule.total_steps, find_key(kTotal)->allowed, kWarmup, schedule.warmup_steps,
                                  reader.find(kWarmup) == nullptr ? " where it is not given" : ""));
  }
  if (!cosine) take_largest_rate(reader, config);
}

}  // namespace sluice
