// Who may include and link whom (ARCHITECTURE.md, "The house"). Pure functions.
#pragma once
#include "tests/house/source_tree.h"

namespace sluice::house {

// Includes that go upwards or sideways, name no file of ours, or bring a third-party library outside its place.
std::vector<Finding> check_includes(const SourceTree& tree);
// Libraries linked to others than the graph's edges, or with an edge missing.
std::vector<Finding> check_links(const SourceTree& tree);

}  // namespace sluice::house
