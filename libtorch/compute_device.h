// On what LibTorch computes in this process. No LibTorch in this header.
#pragma once
#include <string>

#include "core/log.h"
#include "offload/device.h"

namespace sluice {

// Empty where a GPU answers and LibTorch can use it; else what is missing. Loads LibTorch's CUDA side where a GPU
// answers, so it is to be asked before LibTorch computes anything in this process.
std::string why_no_gpu_compute();

// kCuda or kHost. kAuto: kCuda where there is nothing that it lacks, else kHost, and the log says why. kCuda: throws
// DeviceError where it cannot be.
DeviceKind choose_device(DeviceKind wanted, const Log& log);

}  // namespace sluice
