// The known name nearest to one that is not, for errors. Pure functions.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace sluice {

// Levenshtein's distance: single characters inserted, removed or replaced.
size_t edit_distance(std::string_view a, std::string_view b);

// The same where it is so short that one may be meant for the other: a third of the longer one, or one. nullopt: not
// so.
std::optional<size_t> slip_between(std::string_view a, std::string_view b);

// By edit distance, the first among equals; `known` is not empty.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace sluice
