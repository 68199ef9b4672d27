// Sizes of files and functions (CONTRIBUTING.md, "Sizes"). Pure functions.
#pragma once
#include "tests/house/source_tree.h"

namespace sluice::house {

constexpr int kMostLinesOfAFile = 500;
constexpr int kMostLinesOfAFunction = 70;

struct Function {
  std::string head;  // its text up to the body, white space squeezed
  int first_line = 0;
  int lines = 0;  // from the first line of the head to that of the closing brace
};

// Functions of a C++ file: bodies whose head has a parameter list, directly in a namespace or class. Lambdas and local
// classes count as lines of the function around them.
std::vector<Function> functions_of_cpp(std::string_view text);
// `def`s of a Python file, nested ones too.
std::vector<Function> functions_of_python(std::string_view text);

std::vector<Finding> check_sizes(const SourceTree& tree);

// C++ text with comments, literals and preprocessor lines blanked, line breaks kept.
std::string code_of_cpp(std::string_view text);

}  // namespace sluice::house
