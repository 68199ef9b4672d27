// What the lanes did in a step. Plain values.
#pragma once
#include <cstdint>

namespace sluice {

struct UnitTimes;

struct LaneUse {
  double busy_ms = 0;
  double exposed_ms = 0;  // of it, while nothing was computed
  int64_t bytes = 0;      // payload: elements moved x bytes per element, without the padding of planes
  LaneUse& operator+=(const LaneUse& more);
};
struct StepLanes {
  LaneUse read, write, upload, download, compute, update;
  double drive_busy_ms = 0;  // reads or writes under way, or both
  // The same bytes by group, for tables and tests.
  int64_t state_read_bytes = 0, state_write_bytes = 0, weights_read_bytes = 0, weights_write_bytes = 0;
  int64_t gradient_read_bytes = 0, gradient_write_bytes = 0, activations_read_bytes = 0, activations_write_bytes = 0;
  StepLanes& operator+=(const StepLanes& more);
};
StepLanes lanes_of(const UnitTimes& times);

}  // namespace sluice
