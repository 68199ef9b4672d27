// Measures this machine for predictions: a few seconds, scratch files without names, memory that is given back.
#pragma once
#include <filesystem>
#include <vector>

#include "core/clock.h"
#include "core/dtype.h"
#include "cpu_adam/adam.h"
#include "engine/machine.h"
#include "offload/device.h"
#include "swap/record_store.h"

namespace sluice {

struct MachineProbeOptions {
  StoreOptions store;  // its folders, weights (none: as the drives' speeds), queue and block size
  RecordFormat format;
  DType gradient_dtype = DType::kBf16;
  AdamKind kind = AdamKind::kAdamW;
  int update_threads = 0;  // 0: one a physical core
  int compute_threads = 1;
  DeviceKind device = DeviceKind::kHost;
};

// Another one where the same machine is measured in another way: figures kept from earlier builds do not compare.
constexpr int kMachineProbeVersion = 4;

// Each part alone, one after the other, on the machine as it is: other programs' work makes it slower. Blocking. Throws
// IoError (a folder without room, a queue that cannot be had), DeviceError. compute_tflop_per_s stays 0: visits are
// timed. device_update_gb_per_s stays 0 where host memory plays the device.
MachineSpeeds probe_machine(const MachineProbeOptions& options);

// The drives' part of it alone, about a second: what changes with what else a drive does. Throws IoError.
void probe_drives(const StoreOptions& store, MachineSpeeds& speeds, const Clock& clock = now_ns);

}  // namespace sluice
