// How fast a device copies, closes gradients and updates: measured with the calls that a step makes.
#pragma once
#include <functional>
#include <memory>

#include "core/adam_step.h"
#include "core/dtype.h"
#include "offload/device.h"

namespace sluice {

struct DeviceProbeOptions {
  DeviceKind device = DeviceKind::kHost;
  RecordFormat format;
  DType gradient_dtype = DType::kBf16;
  AdamKind kind = AdamKind::kAdamW;
  std::function<std::unique_ptr<Device>(DeviceKind, int64_t, AdamKernel)> make_device = sluice::make_device;
};

struct DeviceSpeeds {
  double upload_gb_per_s = 0, download_gb_per_s = 0;  // several copies under way
  // Of what is read and written there: a copy within the device, what its memory gives; kernels one at a time.
  double copy_gb_per_s = 0, update_gb_per_s = 0, add_gb_per_s = 0, close_gb_per_s = 0;
};

// A fraction of a second, blocking. Throws DeviceError.
DeviceSpeeds probe_device(const DeviceProbeOptions& options);

}  // namespace sluice
