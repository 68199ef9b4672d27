// Regular expressions for tests, compiled in one file: the standard library's take a compiler seconds in every file
// that has them.
#pragma once
#include <string>
#include <vector>

namespace sluice {

// What `pattern` (ECMAScript) matches in `text`, in order, without overlaps: of each match the whole, then its groups
// (empty where one took no part).
std::vector<std::vector<std::string>> matches_of(const std::string& pattern, const std::string& text);

}  // namespace sluice
