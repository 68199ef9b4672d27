#include "app/endurance.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"

namespace sluice {
namespace {

constexpr double kSecondsPerDay = 24 * 60 * 60, kTerabyte = 1e12;

// As drives are rated: decimal.
std::string terabytes(double bytes) { return fmt::format("{:.3g} TB", bytes / kTerabyte); }

std::string days_words(double days) {
  if (days < 1) return "less than a day";
  return days < 2 * 365 ? fmt::format("{:.0f} days", days) : fmt::format("{:.1f} years", days / 365);
}

}  // namespace

Endurance endurance_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn) {
  Endurance endurance;
  const auto per_step = static_cast<double>(rate.bytes_per_step);
  const double steps_per_day = rate.step_seconds > 0 ? kSecondsPerDay / rate.step_seconds : 0;
  if (steps_per_day > 0) endurance.bytes_per_day = per_step * steps_per_day;
  if (asked.terabytes_written == 0) return endurance;
  int64_t written = 0;
  for (const DriveWear& drive : worn) written = std::max(written, drive.written_bytes.value_or(0));
  const double left = std::max(0.0, asked.terabytes_written * kTerabyte - static_cast<double>(written));
  endurance.lasts_steps = left / std::max(per_step * rate.largest_share, 1e-9);
  if (steps_per_day == 0) return endurance;
  endurance.lasts_days = *endurance.lasts_steps / steps_per_day;
  endurance.is_too_short = *endurance.lasts_days < asked.days;
  return endurance;
}

std::string words_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn) {
  const Endurance endurance = endurance_of(asked, rate, worn);
  std::string text = fmt::format("nvme writes       {} a step", format_bytes(rate.bytes_per_step));
  if (endurance.bytes_per_day) {
    text += fmt::format(", {} a day at {:.3g} s a step", terabytes(*endurance.bytes_per_day), rate.step_seconds);
  }
  text += "\n";
  for (const DriveWear& drive : worn) {
    const std::string name = drive.device.empty() ? "drive" : drive.device;
    text += drive.written_bytes
                ? fmt::format("{:<17} {} written in its life, {} % of its endurance used, by its own counter\n", name,
                              terabytes(static_cast<double>(*drive.written_bytes)), *drive.used_percent)
                : fmt::format("{:<17} no counter of its own: {}\n", name, drive.reason);
  }
  if (endurance.lasts_days) {
    text += fmt::format("endurance         {:g} TB last {} at this rate ({:g} days are asked for)\n",
                        asked.terabytes_written, days_words(*endurance.lasts_days), asked.days);
  } else if (endurance.lasts_steps) {
    text += fmt::format("endurance         {:g} TB last {:.3g} steps: {:g} days of steps of {:.3g} s\n",
                        asked.terabytes_written, *endurance.lasts_steps, asked.days,
                        asked.days * kSecondsPerDay / std::max(*endurance.lasts_steps, 1e-9));
  }
  return text;
}

std::string warning_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn) {
  const Endurance endurance = endurance_of(asked, rate, worn);
  if (!endurance.is_too_short) return {};
  return fmt::format(
      "the drive lasts {} at this rate and {:g} days are asked for (endurance.days): raise sluice.commit_interval or "
      "sluice.host_memory, so that less is written, or take a drive rated for more than {:g} TB",
      days_words(*endurance.lasts_days), asked.days, asked.terabytes_written);
}

}  // namespace sluice
