#pragma once
#include <cstdint>

namespace sluice {

constexpr int64_t kSectorBytes = 512;  // what a drive writes whole or not at all

}  // namespace sluice
