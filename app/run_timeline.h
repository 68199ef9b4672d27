// One step's hops as a run has kept them: timeline.json of its folder.
#pragma once
#include <filesystem>
#include <vector>

#include "app/svg_chart.h"

namespace sluice {

struct Timeline {
  std::vector<TimelineRow> rows;  // one a lane; none: no step has been sampled yet
  double ms = 0;
};

// Throws ConfigError where the file is there and cannot be understood.
Timeline read_timeline(const std::filesystem::path& file);

}  // namespace sluice
