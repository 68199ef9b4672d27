#include "tests/app/matches.h"

#include <regex>

namespace sluice {

std::vector<std::vector<std::string>> matches_of(const std::string& pattern, const std::string& text) {
  const std::regex compiled(pattern);
  std::vector<std::vector<std::string>> all;
  for (std::sregex_iterator at(text.begin(), text.end(), compiled), end; at != end; ++at)
    all.emplace_back(at->begin(), at->end());
  return all;
}

}  // namespace sluice
