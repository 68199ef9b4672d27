#include "offload/device.h"

#include "core/errors.h"

namespace sluice {

std::unique_ptr<Device> make_device(DeviceKind kind, int64_t bytes) {
  if (kind == DeviceKind::kCuda) {
    throw DeviceError("device cuda: this build has no CUDA device; use the host twin (device_host)");
  }
  return make_device_host(bytes);
}

std::string explain_device() { return "device_host: this build has no CUDA device"; }

}  // namespace sluice
