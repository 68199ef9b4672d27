// The page of a run: one self-contained HTML text, in light and dark, that opens without a network. Pure.
#pragma once
#include <string>

#include "app/run_data.h"

namespace sluice {

std::string report_page(const RunData& run);
// What bound the run, in a sentence or two, and what would help.
std::string what_bound(const Steady& steady);

}  // namespace sluice
