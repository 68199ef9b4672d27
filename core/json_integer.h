// Integers in people's JSON.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

namespace sluice {

// Of 64 bits. 1e6 is an integer for people; about 2^53 and beyond a double is not one any more. nullopt: not one.
template <typename Json>
std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_float()) {
    const auto number = value.template get<double>();
    const bool is_whole = number == std::floor(number) && std::abs(number) < 9e15;
    return is_whole ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.template get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return value.template get<int64_t>();
}

}  // namespace sluice
