// Byte quantities: how they are written in configurations and shown in tables. Pure functions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMostBudgetBytes = int64_t{1} << 60;  // of a budget: several of them, or twice as much, can be counted

// Rounds up to a multiple of `step` (any positive step).
constexpr int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// "12GiB", "64 MiB", "1.5GB", "4096": a count of bytes. Powers of 1024 for KiB to EiB, of 1000 for KB to EB.
// Throws ConfigError naming the text and what is allowed.
int64_t parse_bytes(std::string_view text);

// "64.0 MiB", "512 B": for people; four significant digits at the most.
std::string format_bytes(int64_t bytes);

}  // namespace sluice
