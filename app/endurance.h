// How long a drive lasts at the rate at which a run writes to it. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "swap/drive_wear.h"

namespace sluice {

struct WriteRate {
  int64_t bytes_per_step = 0;  // to all drives together
  double step_seconds = 0;     // 0: not known
  double largest_share = 1;    // of one drive in that: it wears out first
};

struct Endurance {
  // Nothing where the step's time is not known.
  std::optional<double> bytes_per_day;
  // Of the drive that wears out first; nothing where the configuration has no "endurance".
  std::optional<double> lasts_steps, lasts_days;
  // It lasts for fewer days than the configuration asks for.
  bool is_too_short = false;
};

// `worn`: what the drives' own counters say; what has been written already is taken off the rating.
Endurance endurance_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn);

// A line each: bytes per step and day; the drives' own counters; how long they last.
std::string words_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn);
// Empty: nothing to warn of.
std::string warning_of(const EnduranceConfig& asked, const WriteRate& rate, const std::vector<DriveWear>& worn);

}  // namespace sluice
