// Machines made up for predictions.
#pragma once
#include "engine/machine.h"

namespace sluice::testing {

inline void set_drives(MachineSpeeds& machine, double gb_per_s) {
  machine.read_gb_per_s = machine.write_gb_per_s = machine.mixed_gb_per_s = gb_per_s;
}

// Every byte at one speed, and an element updated in the time of one byte; all else takes no time.
inline MachineSpeeds machine_of(double gb_per_s) {
  MachineSpeeds machine{.upload_gb_per_s = gb_per_s,
                        .download_gb_per_s = gb_per_s,
                        .update_ns_per_element = 1 / gb_per_s,
                        .checksum_gb_per_s = gb_per_s,
                        .close_gb_per_s = gb_per_s};
  set_drives(machine, gb_per_s);
  return machine;
}

// For tests in which one thing alone takes time.
inline MachineSpeeds endless() { return machine_of(1e9); }

}  // namespace sluice::testing
