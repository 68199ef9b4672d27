// What every commit carries of a run beside its state, and what a run that goes on makes of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "app/run_folder.h"
#include "core/log.h"
#include "offload/device.h"
#include "swap/record_store.h"

namespace sluice {

// Of older commits the data alone.
struct Carried {
  uint32_t data = 0;    // fingerprint of the tokens that are trained on
  uint32_t device = 0;  // that computed: 1 cpu, 2 cuda; 0: not known
  static Carried of(uint32_t data, DeviceKind device);
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

// Throws ConfigError where it was trained on other tokens; warns where another kind of device computed, whose sums have
// other last digits.
void check_carried(const StepState& committed, const Carried& now, const RunFolder& folder, const Log& log);

}  // namespace sluice
