// What LibTorch keeps once a process: thread counts and determinism. No LibTorch in this header.
#pragma once
#include <string>

namespace sluice {

struct ProcessSettings {
  int compute_threads = 0;  // threads inside one operator; 0: as many as this process may use cores
};

// Deterministic algorithms on, uninitialised memory left as it is, thread counts fixed, dynamic thread adjustment off.
// The first call decides; a later one with other values throws ConfigError naming both. Thread-safe.
// Returns the settings with defaults filled in.
ProcessSettings set_process(const ProcessSettings& settings);

int compute_threads();  // inside one operator, as LibTorch has it now

std::string libtorch_version();  // "2.11.0"
// One line on how LibTorch computes here: version, instruction set, threads.
std::string describe_libtorch();

}  // namespace sluice
