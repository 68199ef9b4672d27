// Options that take a list. (CLI11's own delimiter takes the next option for a word where a text is commas alone.)
#pragma once
#include <string>
#include <vector>

namespace sluice {

// The words between the commas of a text; some may be empty.
std::vector<std::string> words_between_commas(const std::string& text);

}  // namespace sluice
