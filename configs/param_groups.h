// "optimizer.param_groups": hyper-parameters of their own for parameters whose names match patterns. Pure functions.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_adam/adam.h"
#include "engine/parameter_groups.h"

namespace sluice {

struct ParamGroupConfig {
  std::vector<std::string> patterns;  // of names: * is any run of characters, ? is one, [ab] one of those
  AdamOptions optimizer;              // the run's, but for what the group says
  double lr_factor = 1;
};

// The parameters of each group: a parameter belongs to the first group with a pattern that matches its name. Throws
// ConfigError for a pattern that matches none (naming the nearest name) and for a group whose parameters have all been
// taken by those before it.
std::vector<ParameterGroup> match_groups(std::span<const ParamGroupConfig> groups,
                                         std::span<const std::string_view> names);

}  // namespace sluice
