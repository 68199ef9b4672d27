#include "app/whole_number.h"

#include <fmt/format.h>

#include <charconv>

namespace sluice {
namespace {

bool is_within(const std::string& text, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= least && value <= most && (value == 0 || text.front() != '0');
}

}  // namespace

std::function<std::string(const std::string& text)> whole_number(int64_t least, int64_t most) {
  return [least, most](const std::string& text) {
    if (is_within(text, least, most)) return std::string();
    if (least == 1 && most == std::numeric_limits<int64_t>::max()) return text + " is not a positive integer";
    return fmt::format("{} is not an integer from {} to {}", text, least, most);
  };
}

}  // namespace sluice
