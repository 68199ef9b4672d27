// Options that take an integer.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace sluice {

// For CLI::Option::check: an integer from `least` to `most` in decimal digits alone. The library itself would read 010
// as 8, 0x4 as 4, and -1 as the largest number there is.
std::function<std::string(const std::string& text)> whole_number(int64_t least,
                                                                 int64_t most = std::numeric_limits<int64_t>::max());

}  // namespace sluice
