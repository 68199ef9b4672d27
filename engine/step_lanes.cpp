#include "engine/step_lanes.h"

#include "offload/executor.h"

namespace sluice {

LaneUse& LaneUse::operator+=(const LaneUse& more) {
  busy_ms += more.busy_ms;
  exposed_ms += more.exposed_ms;
  bytes += more.bytes;
  for (size_t group = 0; group < group_bytes.size(); ++group) group_bytes[group] += more.group_bytes[group];
  return *this;
}

StepLanes& StepLanes::operator+=(const StepLanes& more) {
  for (size_t lane = 0; lane < uses.size(); ++lane) uses[lane] += more.uses[lane];
  drive_busy_ms += more.drive_busy_ms;
  return *this;
}

StepLanes lanes_of(const UnitTimes& times) {
  StepLanes lanes{.uses = {}, .drive_busy_ms = static_cast<double>(times.drive_busy_ns) / 1e6};
  for (size_t lane = 0; lane < lanes.uses.size(); ++lane) {
    lanes.uses[lane] = {.busy_ms = static_cast<double>(times.busy_ns[lane]) / 1e6,
                        .exposed_ms = static_cast<double>(times.exposed_ns[lane]) / 1e6,
                        .bytes = times.bytes[lane],
                        .group_bytes = times.group_bytes[lane]};
  }
  return lanes;
}

}  // namespace sluice
