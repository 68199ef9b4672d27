// Words that are not left behind in the tree, or do not stand in messages. Pure functions.
#pragma once
#include "tests/house/source_tree.h"

namespace sluice::house {

// Marks of unfinished work, except a to-do that a colon and its reason follow.
std::vector<Finding> check_words(const SourceTree& tree);

// What others take alone (core/, swap/) knows nothing of a command: no text in it names an option (--resume) or a key
// of the configuration (sluice.nvme). StoreWords has them.
std::vector<Finding> check_option_names(const SourceTree& tree);

}  // namespace sluice::house
