// What stands in for device_cuda.cpp where the build has no CUDA side.
#include "core/errors.h"
#include "offload/device.h"
#include "offload/gpu.h"

namespace sluice {

std::string why_no_gpu() {
  return "this build has no CUDA side: configure with -DSLUICE_CUDA=ON where nvcc is (CUDA 12.8 or later)";
}
std::vector<Gpu> list_gpus() { return {}; }

Gpu first_gpu() { throw DeviceError("device cuda: " + why_no_gpu() + "; or use the host twin (device_host)"); }

std::unique_ptr<Device> make_device_cuda(int64_t) {
  first_gpu();
  return nullptr;
}

}  // namespace sluice
