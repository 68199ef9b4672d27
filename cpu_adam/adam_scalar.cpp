#include <cmath>
#include <cstring>

#include "core/errors.h"
#include "core/half.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/split_master.h"
#include "cpu_adam/stochastic_rounding.h"

namespace sluice {
namespace {

template <class T>
T load(const std::byte* plane, int64_t i) {
  T value;
  std::memcpy(&value, plane + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* plane, int64_t i, T value) {
  std::memcpy(plane + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <DType kType>
float load_gradient(const std::byte* gradient, int64_t i) {
  if constexpr (kType == DType::kBf16) return float_of_bf16(load<uint16_t>(gradient, i));
  if constexpr (kType == DType::kFp16) return float_of_fp16(load<uint16_t>(gradient, i));
  return load<float>(gradient, i);
}

template <Precision kPrecision>
float load_master(const AdamPlanes& planes, int64_t i) {
  if constexpr (kPrecision == Precision::kBf16) {
    return join_master({load<uint16_t>(planes.weights, i), planes.residual[i]});
  }
  if constexpr (kPrecision == Precision::kFp16) return planes.master[i];
  return load<float>(planes.weights, i);
}

template <Precision kPrecision>
void store_master(const AdamPlanes& planes, int64_t i, float master) {
  if constexpr (kPrecision == Precision::kBf16) {
    const SplitMaster split = split_master(master);
    store(planes.weights, i, split.weight);
    planes.residual[i] = split.residual;
  } else if constexpr (kPrecision == Precision::kFp16) {
    planes.master[i] = master;
    store(planes.weights, i, fp16_of_float(master));
  } else {
    store(planes.weights, i, master);
  }
}

struct Moments {
  float m = 0, v = 0;
};

template <DType kMoments>
Moments load_moments(const AdamPlanes& planes, int moments, int64_t i) {
  if constexpr (kMoments == DType::kBf16) {
    return {float_of_bf16(planes.half_moment1[i]), moments == 2 ? float_of_bf16(planes.half_moment2[i]) : 0.0f};
  }
  return {planes.moment1[i], moments == 2 ? planes.moment2[i] : 0.0f};
}

template <DType kMoments>
void store_moments(const AdamPlanes& planes, int moments, uint32_t key, int64_t i, Moments values) {
  if constexpr (kMoments == DType::kBf16) {
    const uint32_t chance = rounding_bits(key, planes.element + i);
    planes.half_moment1[i] = bf16_by_chance(values.m, chance & 0xffffu);
    if (moments == 2) planes.half_moment2[i] = bf16_by_chance(values.v, chance >> 16);
  } else {
    planes.moment1[i] = values.m;
    if (moments == 2) planes.moment2[i] = values.v;
  }
}

struct Moved {
  float p, m;
};

Moved with_one_moment(const AdamStep& step, float p, float m, float g) {
  if (step.kind == AdamKind::kLion) {
    p = p * step.decay;
    const float c = std::fma(step.one_minus_beta1, g - m, m);
    // A zero and a NaN stand for themselves.
    p = p - (std::fabs(c) > 0 ? std::copysign(step.step_size, c) : c);
    return {p, std::fma(step.one_minus_beta2, g - m, m)};
  }
  g = std::fma(step.weight_decay, p, g);
  if (step.kind == AdamKind::kAdagrad) {
    m = std::fma(g, g, m);
    return {p - (step.step_size * g) / (std::sqrt(m) + step.epsilon), m};
  }
  m = std::fma(step.momentum, m, g);
  return {p - step.step_size * m, m};
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update_one(const AdamStep& step, const AdamPlanes& planes, int64_t elements) {
  bool finite = true;
  for (int64_t i = 0; i < elements; ++i) {
    const float g = load_gradient<kGradient>(planes.gradient, i) * step.scale;
    const Moved moved =
        with_one_moment(step, load_master<kPrecision>(planes, i), load_moments<kMoments>(planes, 1, i).m, g);
    store_moments<kMoments>(planes, 1, step.rounding_key, i, {.m = moved.m});
    store_master<kPrecision>(planes, i, moved.p);
    finite = finite && std::isfinite(moved.p) && std::isfinite(moved.m);
  }
  return finite ? Finite::kYes : Finite::kNo;
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements) {
  if (moments_of(optimizer_of(step.kind)) == 1) {
    return update_one<kPrecision, kGradient, kMoments>(step, planes, elements);
  }
  bool finite = true;
  for (int64_t i = 0; i < elements; ++i) {
    float g = load_gradient<kGradient>(planes.gradient, i) * step.scale;
    float p = load_master<kPrecision>(planes, i);
    if (step.kind == AdamKind::kAdamW) {
      p = p * step.decay;
    } else {
      g = std::fma(step.weight_decay, p, g);
    }
    const Moments before = load_moments<kMoments>(planes, 2, i);
    const float m = std::fma(step.one_minus_beta1, g - before.m, before.m);
    const float v = std::fma(step.one_minus_beta2, g * g, step.beta2 * before.v);
    const float den = std::sqrt(v) / step.correction2 + step.epsilon;
    p = p - (step.step_size * m) / den;
    store_moments<kMoments>(planes, 2, step.rounding_key, i, {m, v});
    store_master<kPrecision>(planes, i, p);
    finite = finite && std::isfinite(p) && std::isfinite(m) && std::isfinite(v);
  }
  return finite ? Finite::kYes : Finite::kNo;
}

template <Precision kPrecision, DType kGradient>
AdamKernel update_of(DType moments) {
  return moments == DType::kBf16 ? update<kPrecision, kGradient, DType::kBf16>
                                 : update<kPrecision, kGradient, DType::kFp32>;
}

}  // namespace

AdamKernel adam_scalar(AdamFormat format) {
  check_format(format);
  const bool fp32_gradient = format.gradient == DType::kFp32;
  switch (format.precision) {
    case Precision::kBf16:
      return fp32_gradient ? update_of<Precision::kBf16, DType::kFp32>(format.moments)
                           : update_of<Precision::kBf16, DType::kBf16>(format.moments);
    case Precision::kFp16:
      return fp32_gradient ? update_of<Precision::kFp16, DType::kFp32>(format.moments)
                           : update_of<Precision::kFp16, DType::kFp16>(format.moments);
    case Precision::kFp32:
      break;
  }
  return update_of<Precision::kFp32, DType::kFp32>(format.moments);
}

}  // namespace sluice
