// What LibTorch keeps once a process: thread counts and determinism. No LibTorch in this header.
#pragma once
#include <string>

#include "core/dtype.h"

namespace sluice {

struct ProcessSettings {
  int compute_threads = 0;  // threads inside one operator; 0: as many as this process may use cores
};

// Deterministic algorithms on, uninitialised memory left as it is, thread counts fixed, dynamic thread adjustment off.
// The first call decides; a later one with other values throws ConfigError naming both. Thread-safe.
// Returns the settings with defaults filled in.
ProcessSettings set_process(const ProcessSettings& settings);

int compute_threads();  // inside one operator, as LibTorch has it now

// Whether LibTorch's products of matrices of this type have a kernel on this CPU. bf16's wants AVX-512, fp16's AVX-512
// with FP16; without one elements are multiplied one by one, fifty to a hundred times slower than fp32.
bool has_product_kernel(DType type);

std::string libtorch_version();  // "2.11.0"
// One line on how LibTorch computes here: version, instruction set, threads.
std::string describe_libtorch();

}  // namespace sluice
