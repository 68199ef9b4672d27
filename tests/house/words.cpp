#include "tests/house/words.h"

#include <algorithm>
#include <regex>

namespace sluice::house {

std::vector<Finding> check_words(const SourceTree& tree) {
  // In two halves, so that this file does not report itself.
  const std::regex mark(R"(\b(FIX)"
                        R"(ME|HA)"
                        R"(CK|XX)"
                        R"(X|TO)"
                        R"(DO(?!: \w+ \w+))\b)");
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    const std::vector<std::string> lines = lines_of(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      std::smatch match;
      if (std::regex_search(lines[i], match, mark)) {
        findings.push_back({file.path, static_cast<int>(i) + 1, match.str() + " without a reason"});
      }
    }
  }
  return findings;
}

namespace {

// Slashes in a text are none.
std::string without_comment(const std::string& line) {
  for (size_t at = line.find("//"); at != std::string::npos; at = line.find("//", at + 1)) {
    if (std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(at), '"') % 2 == 0)
      return line.substr(0, at);
  }
  return line;
}

}  // namespace

std::vector<Finding> check_option_names(const SourceTree& tree) {
  const std::regex name(R"re("[^"]*(--[a-z]|sluice\.[a-z]))re");
  std::vector<Finding> findings;
  for (const SourceFile& file : tree) {
    if (!file.path.starts_with("core/") && !file.path.starts_with("swap/")) continue;
    const std::vector<std::string> lines = lines_of(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (std::regex_search(without_comment(lines[i]), name))
        findings.push_back({file.path, static_cast<int>(i) + 1, "a message names an option of the command"});
    }
  }
  return findings;
}

}  // namespace sluice::house
