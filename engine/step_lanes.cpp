#include "engine/step_lanes.h"

#include "offload/executor.h"

namespace sluice {

LaneUse& LaneUse::operator+=(const LaneUse& more) {
  busy_ms += more.busy_ms;
  exposed_ms += more.exposed_ms;
  bytes += more.bytes;
  return *this;
}

StepLanes& StepLanes::operator+=(const StepLanes& more) {
  for (const auto lane : {&StepLanes::read, &StepLanes::write, &StepLanes::upload, &StepLanes::download,
                          &StepLanes::compute, &StepLanes::update}) {
    this->*lane += more.*lane;
  }
  drive_busy_ms += more.drive_busy_ms;
  for (const auto bytes :
       {&StepLanes::state_read_bytes, &StepLanes::state_write_bytes, &StepLanes::weights_read_bytes,
        &StepLanes::weights_write_bytes, &StepLanes::gradient_read_bytes, &StepLanes::gradient_write_bytes,
        &StepLanes::activations_read_bytes, &StepLanes::activations_write_bytes}) {
    this->*bytes += more.*bytes;
  }
  return *this;
}

StepLanes lanes_of(const UnitTimes& times) {
  const auto lane = [&](Lane which) {
    const int i = static_cast<int>(which);
    return LaneUse{.busy_ms = static_cast<double>(times.busy_ns[i]) / 1e6,
                   .exposed_ms = static_cast<double>(times.exposed_ns[i]) / 1e6,
                   .bytes = times.bytes[i]};
  };
  const auto group = [&](Lane which, Group g) {
    return times.group_bytes[static_cast<int>(which)][static_cast<int>(g)];
  };
  return {.read = lane(Lane::kRead),
          .write = lane(Lane::kWrite),
          .upload = lane(Lane::kUpload),
          .download = lane(Lane::kDownload),
          .compute = lane(Lane::kCompute),
          .update = lane(Lane::kUpdate),
          .drive_busy_ms = static_cast<double>(times.drive_busy_ns) / 1e6,
          .state_read_bytes = group(Lane::kRead, Group::kState),
          .state_write_bytes = group(Lane::kWrite, Group::kState),
          .weights_read_bytes = group(Lane::kRead, Group::kWeights),
          .weights_write_bytes = group(Lane::kWrite, Group::kWeights),
          .gradient_read_bytes = group(Lane::kRead, Group::kGradient),
          .gradient_write_bytes = group(Lane::kWrite, Group::kGradient),
          .activations_read_bytes = group(Lane::kRead, Group::kActivations),
          .activations_write_bytes = group(Lane::kWrite, Group::kActivations)};
}

}  // namespace sluice
