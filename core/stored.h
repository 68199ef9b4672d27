// A value as it lies in memory: bf16 and fp16 in two bytes. Plain arithmetic, which a GPU's kernels use as well.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "core/half.h"

namespace sluice {

template <DType kType>
struct StoredAs {
  using Type = uint16_t;
};
template <>
struct StoredAs<DType::kFp32> {
  using Type = float;
};
template <DType kType>
using Stored = typename StoredAs<kType>::Type;

template <DType kType>
constexpr float widened(Stored<kType> value) {
  if constexpr (kType == DType::kBf16) return float_of_bf16(value);
  if constexpr (kType == DType::kFp16) return float_of_fp16(value);
  if constexpr (kType == DType::kFp32) return value;
}
template <DType kType>
constexpr Stored<kType> rounded(float value) {
  if constexpr (kType == DType::kBf16) return bf16_of_float(value);
  if constexpr (kType == DType::kFp16) return fp16_of_float(value);
  if constexpr (kType == DType::kFp32) return value;
}

}  // namespace sluice
