// Gradients for the tests of devices and their kernels: made up, stored, compared by bits with NaN as a class.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "offload/gradient_kernels.h"

namespace sluice {

constexpr DType kEveryDType[] = {DType::kBf16, DType::kFp16, DType::kFp32};

inline std::vector<int64_t> every_size() {
  std::vector<int64_t> sizes(258);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const int64_t size : {4095, 4096, 4097, 8191, 8192, 8193, 20'011}) sizes.push_back(size);
  return sizes;
}

// kEdges: every second value is Inf, NaN, zero, subnormal, the largest, a halfway point of rounding or any pattern.
enum class Values { kOrdinary, kEdges };

inline std::vector<float> make_values(int64_t elements, Values values, uint64_t seed) {
  constexpr uint32_t kEdges[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0x00000001,
                                 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f808000, 0x3f818000,
                                 0x33000000, 0x33800000, 0x387fe000, 0x38800000, 0x477fe000, 0x477ff000, 0x7f7f8000};
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(static_cast<size_t>(elements));
  for (float& value : made) {
    value = normal(random) * std::exp2(static_cast<float>(random() % 40) - 25.0f);
    if (values == Values::kOrdinary || random() % 2 == 0) continue;
    const auto pattern = static_cast<uint32_t>(random());
    value = std::bit_cast<float>(random() % 4 == 0 ? pattern : kEdges[pattern % std::size(kEdges)]);
  }
  return made;
}

inline const std::byte* bytes_in(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

inline std::vector<std::byte> stored_as(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> stored(values.size() * static_cast<size_t>(bytes_of(dtype)));
  if (!values.empty()) round_to(values.data(), stored.data(), dtype, static_cast<int64_t>(values.size()));
  return stored;
}

// Both hold elements of `dtype`.
inline bool same_values(const std::byte* a, const std::byte* b, DType dtype, int64_t elements) {
  std::vector<float> wide_a(static_cast<size_t>(elements)), wide_b(wide_a);
  add_gradient(wide_a.data(), {a, dtype, elements}, Contribution::kFirst);  // widens
  add_gradient(wide_b.data(), {b, dtype, elements}, Contribution::kFirst);
  for (size_t i = 0; i < wide_a.size(); ++i) {
    const bool nan = wide_a[i] != wide_a[i] && wide_b[i] != wide_b[i];
    if (!nan && std::bit_cast<uint32_t>(wide_a[i]) != std::bit_cast<uint32_t>(wide_b[i])) return false;
  }
  return true;
}
inline bool same_sum(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (a != a && b != b);
}

}  // namespace sluice
