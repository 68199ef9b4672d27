#include "app/comma_list.h"

#include <algorithm>

namespace sluice {

std::vector<std::string> words_between_commas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

}  // namespace sluice
