// The "optimizer" section: the type, its hyper-parameters, and those of groups.
#pragma once
#include "configs/config_reader.h"
#include "configs/run_config.h"

namespace sluice {

bool is_optimizer_type(std::string_view name);  // one of those that optimizer.type may have, in any case

// Fills in `optimizer` and `param_groups`, and adds to `notes`. Throws ConfigError.
void read_optimizer(const ConfigReader& reader, RunConfig& config);

}  // namespace sluice
