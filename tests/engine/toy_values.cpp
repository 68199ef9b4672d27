#include "tests/engine/toy_values.h"

#include <bit>
#include <cstring>

#include "offload/gradient_kernels.h"

namespace sluice::testing {
namespace {

float widen(const std::byte* at, DType dtype) {
  if (dtype == DType::kFp32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  if (dtype == DType::kBf16) return std::bit_cast<float>(uint32_t{bits} << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

}  // namespace

std::vector<float> widen_all(const std::byte* at, int64_t elements, DType dtype) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) values[i] = widen(at + i * bytes_of(dtype), dtype);
  return values;
}

std::vector<std::byte> narrow(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * bytes_of(dtype));
  round_to(values.data(), bytes.data(), dtype, static_cast<int64_t>(values.size()));
  return bytes;
}

}  // namespace sluice::testing
