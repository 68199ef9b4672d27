#include "offload/device.h"

#include "offload/close_kernel.h"
#include "offload/gpu.h"

namespace sluice {

bool is_gpu(DeviceKind kind) {
  return kind == DeviceKind::kCuda || (kind == DeviceKind::kAuto && why_no_gpu().empty());
}

std::unique_ptr<Device> make_device(DeviceKind kind, int64_t bytes, AdamKernel host_kernel) {
  return is_gpu(kind) ? make_device_cuda(bytes) : make_device_host(bytes, host_kernel);
}

int64_t own_device_bytes(DeviceKind kind) { return is_gpu(kind) ? kernels::kOwnDeviceBytes : 0; }

int node_near_device(DeviceKind kind) { return is_gpu(kind) ? first_gpu().place.numa_node : -1; }

std::string explain_device() {
  const std::string missing = why_no_gpu();
  return missing.empty() ? "device_cuda: " + describe(first_gpu()) : "device_host: " + missing;
}

}  // namespace sluice
