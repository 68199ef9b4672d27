// The "scheduler" section.
#pragma once
#include "configs/config_reader.h"
#include "configs/run_config.h"

namespace sluice {

// After read_optimizer. Fills in `schedule` and the rate that the run and its groups have beside it, and adds to
// `notes`. Throws ConfigError.
void read_schedule(const ConfigReader& reader, RunConfig& config);

}  // namespace sluice
