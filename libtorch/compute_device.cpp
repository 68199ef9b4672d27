#include "libtorch/compute_device.h"

#include "core/errors.h"
#include "libtorch/cuda_module.h"
#include "offload/gpu.h"

namespace sluice {

std::string why_no_gpu_compute() {
  if (std::string missing = why_no_gpu(); !missing.empty()) return missing;
  try {
    return cuda_module().why_not();
  } catch (const DeviceError& error) {
    return error.what();
  }
}

DeviceKind choose_device(DeviceKind wanted, const Log& log) {
  if (wanted == DeviceKind::kHost) return wanted;
  const std::string missing = why_no_gpu_compute();
  if (missing.empty()) return DeviceKind::kCuda;
  if (wanted == DeviceKind::kCuda) {
    throw DeviceError("--device cuda (sluice.device): " + missing + "; or compute on the CPU (--device cpu)");
  }
  say(log, LogLevel::kInfo, "computing on the CPU: " + missing);
  return DeviceKind::kHost;
}

}  // namespace sluice
