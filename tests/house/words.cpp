#include "tests/house/words.h"

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

}  // namespace sluice::house
