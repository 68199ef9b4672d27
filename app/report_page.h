// The page of a run: one self-contained HTML text, in light and dark, that opens without a network. Pure.
#pragma once
#include <optional>
#include <string>

#include "app/run_data.h"
#include "app/run_timeline.h"
#include "app/what_if.h"

namespace sluice {

// `timeline`: nothing where it cannot be understood. `help`: nothing where the run keeps no offers.
std::string report_page(const RunData& run, const std::optional<Timeline>& timeline,
                        const std::optional<WouldHelp>& help);
// What bound the run, in a sentence or two, and what would help: of what the planner was asked about, by its prediction.
std::string what_bound(const Steady& steady, const std::optional<WouldHelp>& help);

}  // namespace sluice
