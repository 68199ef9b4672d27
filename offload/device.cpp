#include "offload/device.h"

#include "offload/gpu.h"

namespace sluice {

std::unique_ptr<Device> make_device(DeviceKind kind, int64_t bytes, AdamKernel host_kernel) {
  if (kind == DeviceKind::kCuda) return make_device_cuda(bytes);
  if (kind == DeviceKind::kAuto && why_no_gpu().empty()) return make_device_cuda(bytes);
  return make_device_host(bytes, host_kernel);
}

std::string explain_device() {
  const std::string missing = why_no_gpu();
  return missing.empty() ? "device_cuda: " + describe(list_gpus().front()) : "device_host: " + missing;
}

}  // namespace sluice
