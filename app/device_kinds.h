// The kinds of device, by the names that every command's --device takes.
#pragma once
#include <map>
#include <string>

#include "offload/device.h"

namespace sluice {

// cpu: host memory plays the device.
inline std::map<std::string, DeviceKind> device_kinds() {
  return {{"auto", DeviceKind::kAuto}, {"cuda", DeviceKind::kCuda}, {"cpu", DeviceKind::kHost}};
}

}  // namespace sluice
