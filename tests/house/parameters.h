// What functions take (CONTRIBUTING.md, "Style"). Pure functions.
#pragma once
#include "tests/house/source_tree.h"

namespace sluice::house {

constexpr int kMostParameters = 4;  // more are an options struct

// Of a function's head, as functions_of_cpp gives it: the text of each, in order.
std::vector<std::string> parameters_of(std::string_view head);

// Functions of C++ files that take more, or a bool, whose meaning the call does not show. Lambdas are not looked at.
std::vector<Finding> check_parameters(const SourceTree& tree);

}  // namespace sluice::house
