// Numbers as the engine stores them, and as the plain arithmetic of tests wants them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace sluice::testing {

std::vector<float> widen_all(const std::byte* at, int64_t elements, DType dtype);
std::vector<std::byte> narrow(const std::vector<float>& values, DType dtype);

}  // namespace sluice::testing
