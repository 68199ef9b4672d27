#include "core/bytes.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>

#include "core/errors.h"

namespace sluice {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KiB", kKiB},
    {"MiB", kMiB},
    {"GiB", kGiB},
    {"TiB", kGiB << 10},
    {"PiB", kGiB << 20},
    {"EiB", kGiB << 30},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000 * 1000 * 1000},
    {"TB", 1000ll * 1000 * 1000 * 1000},
    {"PB", 1000ll * 1000 * 1000 * 1000 * 1000},
    {"EB", 1000ll * 1000 * 1000 * 1000 * 1000 * 1000},
};
constexpr int kFractionDigits = 9;

[[noreturn]] void refuse(std::string_view text) {
  throw ConfigError(
      fmt::format("'{}' is not a number of bytes; write for example 4096, 64MiB or 1.5GB (KiB MiB GiB TiB PiB EiB KB "
                  "MB GB TB PB EB)",
                  text));
}

[[noreturn]] void refuse_large(std::string_view text) {
  throw ConfigError(fmt::format("'{}' is more bytes than can be counted: below 8EiB is allowed", text));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits at `at` and multiplies them into a number; refuses what does not fit.
int64_t take_digits(std::string_view text, size_t& at) {
  int64_t value = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{text[at] - '0'}, &value)) {
      refuse_large(text);
    }
  }
  return value;
}

// Billionths, from the digits behind the point; digits beyond the ninth are dropped.
int64_t take_fraction(std::string_view text, size_t& at) {
  if (at >= text.size() || text[at] != '.') return 0;
  const size_t first = ++at;
  int64_t billionths = 0;
  for (int digit = 0; digit < kFractionDigits; ++digit) {
    billionths *= 10;
    if (at < text.size() && is_digit(text[at])) billionths += text[at++] - '0';
  }
  if (at == first) refuse(text);
  while (at < text.size() && is_digit(text[at])) ++at;
  return billionths;
}

}  // namespace

int64_t parse_bytes(std::string_view text) {
  size_t at = 0;
  if (text.empty() || !is_digit(text[0])) refuse(text);
  const int64_t whole = take_digits(text, at);
  const int64_t billionths = take_fraction(text, at);
  while (at < text.size() && text[at] == ' ') ++at;
  const std::string_view name = text.substr(at);
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    const __int128 bytes =
        static_cast<__int128>(whole) * unit.bytes + static_cast<__int128>(billionths) * unit.bytes / 1'000'000'000;
    if (bytes > std::numeric_limits<int64_t>::max()) refuse_large(text);
    return static_cast<int64_t>(bytes);
  }
  refuse(text);
}

std::string format_bytes(int64_t bytes) {
  constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  if (std::abs(value) < 1024) return fmt::format("{} B", bytes);
  // 1023.5 and more would be shown as 1024.
  while (std::abs(value) >= 1023.5) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 999.95 ? 1 : 0, kNames[unit]);
}

}  // namespace sluice
