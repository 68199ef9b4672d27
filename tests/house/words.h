// Words that are not left behind in the tree. Pure functions.
#pragma once
#include "tests/house/source_tree.h"

namespace sluice::house {

// Marks of unfinished work, except a to-do that a colon and its reason follow.
std::vector<Finding> check_words(const SourceTree& tree);

}  // namespace sluice::house
