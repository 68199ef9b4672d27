// How long a drive lasts at the rate at which a run writes to it. Pure functions, but for drives_in().
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "core/log.h"
#include "swap/drive_wear.h"

namespace sluice {

struct WriteRate {
  int64_t bytes_per_step = 0;  // to all drives together
  double step_seconds = 0;     // 0: not known
  int64_t undone_bytes = 0;  // more in a step whose updates in the backward are undone; 0: not known, or there are none
};

// Steps that were run, and what their plan says.
struct WrittenSteps {
  int64_t steps = 0, bytes = 0;
  double seconds = 0;
  int commit_interval = 1;
  double planned_bytes_per_step = 0;
};
// Of steps that go on like these. Fewer than lie between commits had the last one's all the same: the plan says what is
// usual then. Nothing where there were none.
std::optional<WriteRate> rate_of(const WrittenSteps& written);

// A drive and what it takes of all that is written.
struct WrittenDrive {
  DriveWear wear;
  double share = 1;
};
struct WrittenDrives {
  std::vector<WrittenDrive> list;
  enum class Shares : uint8_t { kOfStore, kTakenAsEqual } shares = Shares::kOfStore;
};
// What folders that are on one device take adds up: it is worn by all of them. Where no device is known, one file
// system is one drive. `parts`: what each folder takes, in any unit.
std::vector<WrittenDrive> by_device(std::span<const DriveWear> folders, std::span<const uint32_t> parts);
// Of a store in these folders, one for each of its drives; they need not be there. Reads the drives' own counters. The
// shares are the store's, or all the same where none is there: they follow from speeds measured when it is made.
WrittenDrives drives_in(std::span<const std::filesystem::path> folders);

struct Endurance {
  // Nothing where the step's time is not known.
  std::optional<double> bytes_per_day;
  // Of the drive that wears out first; nothing where the configuration has no "endurance".
  std::optional<double> lasts_steps, lasts_days;
  size_t first_worn = 0;
  // It lasts for fewer days than the configuration asks for.
  bool is_too_short = false;
};

// What has been written to a drive already is taken off its rating.
Endurance endurance_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives);

// A line each: bytes per step and day; the drives' own counters; how long they last.
std::string words_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives);
// Empty: nothing to warn of.
std::string warning_of(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives);
// words_of(); what warning_of() says goes to the log.
std::string words_and_warning(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives,
                              const Log& log);

}  // namespace sluice
