#include "core/nearest_name.h"

#include <algorithm>
#include <vector>

namespace sluice {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::optional<size_t> slip_between(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size()), longer = std::max(a.size(), b.size());
  const size_t most = std::max<size_t>(1, longer / 3);
  if (longer - shorter > most) return std::nullopt;  // each is an edit
  const size_t edits = edit_distance(a, b);
  return edits <= most ? std::optional(edits) : std::nullopt;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  return *std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

}  // namespace sluice
