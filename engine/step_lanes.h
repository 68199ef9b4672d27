// What the lanes did in a step. Plain values.
#pragma once
#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "offload/program.h"

namespace sluice {

struct UnitTimes;

struct LaneUse {
  double busy_ms = 0;
  double exposed_ms = 0;  // of it, while nothing was computed
  int64_t bytes = 0;      // payload: elements moved x bytes per element, without the padding of planes
  std::array<int64_t, kGroupCount> group_bytes{};  // the same, by group
  LaneUse& operator+=(const LaneUse& more);
};

struct StepLanes {
  std::array<LaneUse, kLaneCount> uses;
  double drive_busy_ms = 0;  // reads or writes under way, or both

  const LaneUse& operator[](Lane lane) const { return uses[static_cast<size_t>(lane)]; }
  int64_t bytes(Lane lane, Group group) const { return (*this)[lane].group_bytes[static_cast<size_t>(group)]; }
  StepLanes& operator+=(const StepLanes& more);
};
StepLanes lanes_of(const UnitTimes& times);

}  // namespace sluice
