#include "engine/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/errors.h"
#include "core/ieee_arithmetic.h"
#include "core/nearest_name.h"

namespace sluice {
namespace {

[[noreturn]] void refuse_unknown(const Geometry& geometry, const std::string& name) {
  std::vector<std::string_view> known;
  for (const Parameter& parameter : geometry.parameters()) known.push_back(parameter.name);
  throw ConfigError(fmt::format("a group names parameter {}, which the model does not have; the nearest is {}", name,
                                nearest_name(name, known)));
}

// Per parameter of the geometry.
std::vector<int> assign(const Geometry& geometry, std::span<const ParameterGroup> groups) {
  std::vector<int> group_of(geometry.parameters().size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g].parameters) {
      const int parameter = geometry.find_parameter(name);
      if (parameter < 0) refuse_unknown(geometry, name);
      int& group = group_of[static_cast<size_t>(parameter)];
      if (group != 0) throw ConfigError(fmt::format("parameter {} is named by two groups, or twice by one", name));
      group = static_cast<int>(g) + 1;
    }
  }
  return group_of;
}

}  // namespace

ParameterGroups::ParameterGroups(const Geometry& geometry, const AdamOptions& others,
                                 std::span<const ParameterGroup> groups) {
  groups_.push_back({.adam = others});
  for (const ParameterGroup& group : groups) {
    if (group.adam.kind != others.kind) throw ConfigError("groups of parameters have one kind of optimizer");
    groups_.push_back({.adam = group.adam, .learning_rate_factor = group.learning_rate_factor});
    groups_.back().adam.rounding_seed = others.rounding_seed;
  }
  const std::vector<int> group_of = assign(geometry, groups);
  for (const Partition& partition : geometry.partitions()) {
    first_run_.push_back(runs_.size());
    const int end = partition.first_parameter + partition.parameter_count;
    for (int p = partition.first_parameter; p < end; ++p) {
      const int64_t stop = p + 1 < end ? geometry.parameters()[static_cast<size_t>(p) + 1].offset : partition.elements;
      const int group = group_of[static_cast<size_t>(p)];
      const bool goes_on = runs_.size() > first_run_.back() && runs_.back().group == group;
      if (!goes_on) runs_.push_back({.end = stop, .group = group});
      runs_.back().end = stop;
    }
  }
  first_run_.push_back(runs_.size());
  runs_.shrink_to_fit();
}

std::span<const GroupRun> ParameterGroups::runs_of(int partition) const {
  const size_t first = first_run_[static_cast<size_t>(partition)];
  return std::span(runs_).subspan(first, first_run_[static_cast<size_t>(partition) + 1] - first);
}

void ParameterGroups::fill_steps(const UpdateMoment& moment, std::span<AdamStep> steps) const {
  SLUICE_CHECK(steps.size() == groups_.size(), "one step for each group");
  const IeeeArithmetic arithmetic;
  for (size_t g = 0; g < groups_.size(); ++g) {
    AdamOptions adam = groups_[g].adam;
    adam.learning_rate = moment.learning_rate * groups_[g].learning_rate_factor;
    steps[g] = adam_step(adam, moment.t, moment.scale);
  }
}

}  // namespace sluice
