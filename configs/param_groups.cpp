#include "configs/param_groups.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "core/errors.h"
#include "core/nearest_name.h"

namespace sluice {
namespace {

bool matches(const std::string& pattern, std::string_view name) {
  return fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
}

void check_pattern(const std::string& pattern, size_t group, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (matches(pattern, name)) return;
  }
  throw ConfigError(fmt::format(
      "\"optimizer.param_groups[{}].params\": \"{}\" matches no parameter of the model; the nearest name is "
      "\"{}\" (* stands for any characters)",
      group, pattern, nearest_name(pattern, names)));
}

}  // namespace

std::vector<ParameterGroup> match_groups(std::span<const ParamGroupConfig> groups,
                                         std::span<const std::string_view> names) {
  std::vector<ParameterGroup> matched;
  std::vector<bool> taken(names.size(), false);
  for (size_t g = 0; g < groups.size(); ++g) {
    ParameterGroup group{.parameters = {}, .adam = groups[g].optimizer, .learning_rate_factor = groups[g].lr_factor};
    for (const std::string& pattern : groups[g].patterns) {
      check_pattern(pattern, g, names);
      for (size_t n = 0; n < names.size(); ++n) {
        if (taken[n] || !matches(pattern, names[n])) continue;
        taken[n] = true;
        group.parameters.emplace_back(names[n]);
      }
    }
    if (group.parameters.empty()) {
      throw ConfigError(fmt::format(
          "\"optimizer.param_groups[{}].params\": every parameter that it matches belongs to a group before it: a "
          "parameter is the first's that matches; put the narrower patterns first",
          g));
    }
    matched.push_back(std::move(group));
  }
  return matched;
}

}  // namespace sluice
