#include "app/endurance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "app/console.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "swap/drive_folders.h"
#include "swap/store_drives.h"

namespace sluice {
namespace {

constexpr double kSecondsPerDay = 24 * 60 * 60, kTerabyte = 1e12;

// As drives are rated: decimal.
std::string terabytes(double bytes) { return fmt::format("{:.3g} TB", bytes / kTerabyte); }

std::string seconds(double value) { return fmt::format("{:.3g} s{}", value, duration_beside(value)); }

std::string days_words(double days) {
  if (days < 1) return "less than a day";
  if (days > 1000 * 365) return "more than 1000 years";
  return days < 2 * 365 ? fmt::format("{:.0f} days", days) : fmt::format("{:.1f} years", days / 365);
}

std::string name_of(const WrittenDrive& drive) { return drive.wear.device.empty() ? "drive" : drive.wear.device; }

std::string words_of(const WrittenDrive& drive) {
  const DriveWear& wear = drive.wear;
  if (!wear.written_bytes) return wear.reason;
  return fmt::format("{} written in its life, {} % of its endurance used, by its own counter",
                     terabytes(static_cast<double>(*wear.written_bytes)), *wear.used_percent);
}

}  // namespace

std::optional<WriteRate> rate_of(const WrittenSteps& written) {
  if (written.steps == 0) return std::nullopt;
  const bool usual = written.steps >= written.commit_interval;
  return WriteRate{
      .bytes_per_step = usual ? written.bytes / written.steps : static_cast<int64_t>(written.planned_bytes_per_step),
      .step_seconds = written.seconds / static_cast<double>(written.steps)};
}

std::vector<WrittenDrive> by_device(std::span<const DriveWear> folders, std::span<const uint32_t> parts) {
  SLUICE_CHECK(folders.size() == parts.size(), "a part for each folder");
  const double all = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<WrittenDrive> drives;
  for (size_t i = 0; i < folders.size(); ++i) {
    const DriveWear& wear = folders[i];
    const auto is_its = [&](const WrittenDrive& drive) {
      return drive.wear.device == wear.device && (!wear.device.empty() || drive.wear.file_system == wear.file_system);
    };
    const auto there = std::ranges::find_if(drives, is_its);
    WrittenDrive& drive = there == drives.end() ? drives.emplace_back(wear, 0.0) : *there;
    drive.share += parts[i] / all;
  }
  return drives;
}

WrittenDrives drives_in(std::span<const std::filesystem::path> folders) {
  std::vector<DriveWear> worn;
  for (const auto& folder : folders) worn.push_back(read_drive_wear(existing_part(folder)));
  using enum WrittenDrives::Shares;
  if (const auto weights = stored_weights(folders)) return {by_device(worn, *weights), kOfStore};
  return {by_device(worn, std::vector<uint32_t>(folders.size(), 1)), kTakenAsEqual};
}

Endurance endurance_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives) {
  Endurance endurance;
  const auto per_step = static_cast<double>(rate.bytes_per_step);
  const double steps_per_day = rate.step_seconds > 0 ? kSecondsPerDay / rate.step_seconds : 0;
  if (steps_per_day > 0) endurance.bytes_per_day = per_step * steps_per_day;
  if (asked.terabytes_written == 0) return endurance;
  for (size_t i = 0; i < drives.list.size(); ++i) {
    const auto& [wear, share] = drives.list[i];
    const auto written = static_cast<double>(wear.written_bytes.value_or(0));
    const double left = std::max(0.0, asked.terabytes_written * kTerabyte - written);
    const double steps = left / std::max(per_step * share, 1e-9);
    if (endurance.lasts_steps && *endurance.lasts_steps <= steps) continue;
    endurance.lasts_steps = steps;
    endurance.first_worn = i;
  }
  if (steps_per_day == 0 || !endurance.lasts_steps) return endurance;
  endurance.lasts_days = *endurance.lasts_steps / steps_per_day;
  endurance.is_too_short = *endurance.lasts_days < asked.days;
  return endurance;
}

std::string words_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives) {
  const Endurance endurance = endurance_of(asked, rate, drives);
  std::string text = fmt::format("nvme writes       {} a step", format_bytes(rate.bytes_per_step));
  if (endurance.bytes_per_day) {
    text += fmt::format(", {} a day at {} a step", terabytes(*endurance.bytes_per_day), seconds(rate.step_seconds));
  }
  if (rate.undone_bytes > 0) {
    text +=
        fmt::format("; {} more in a step whose updates in the backward are undone", format_bytes(rate.undone_bytes));
  }
  text += "\n";
  const bool are_several = drives.list.size() > 1;
  if (are_several && drives.shares == WrittenDrives::Shares::kTakenAsEqual) {
    text += "drives            taken to be equally fast: a store that is made here measures them\n";
  }
  for (const WrittenDrive& drive : drives.list) {
    const std::string share = are_several ? fmt::format("{:.0f} % of that; ", 100 * drive.share) : "";
    text += fmt::format("{:<17} {}{}\n", name_of(drive), share, words_of(drive));
  }
  const std::string first = are_several ? fmt::format(", {} first", name_of(drives.list[endurance.first_worn])) : "";
  if (endurance.lasts_days) {
    text += fmt::format("endurance         {:g} TB last {} at this rate{} ({:g} days are asked for)\n",
                        asked.terabytes_written, days_words(*endurance.lasts_days), first, asked.days);
  } else if (endurance.lasts_steps) {
    text += fmt::format("endurance         {:g} TB last {:.3g} steps{}: {:g} days of steps of {}\n",
                        asked.terabytes_written, *endurance.lasts_steps, first, asked.days,
                        seconds(asked.days * kSecondsPerDay / std::max(*endurance.lasts_steps, 1e-9)));
  }
  return text;
}

std::string warning_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives) {
  const Endurance endurance = endurance_of(asked, rate, drives);
  if (!endurance.is_too_short) return {};
  const std::string drive = drives.list.size() > 1 ? name_of(drives.list[endurance.first_worn]) : "the drive";
  return fmt::format(
      "{} lasts {} at this rate and {:g} days are asked for (endurance.days): raise sluice.commit_interval "
      "or, where state is at home on NVMe, sluice.host_memory, so that less is written, or take a drive rated for more "
      "than {:g} TB",
      drive, days_words(*endurance.lasts_days), asked.days, asked.terabytes_written);
}

std::string words_and_warning(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives,
                              const Log& log) {
  const std::string warning = warning_of(asked, rate, drives);
  if (!warning.empty()) say(log, LogLevel::kWarning, warning);
  return words_of(asked, rate, drives);
}

}  // namespace sluice
