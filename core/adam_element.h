// One element's update, exact to the bit: cpu_adam's scalar reference and a device's kernel run this very code. fp32 of
// IEEE in this order, fma only where it is written (core/adam_step.h has the formulas). Pure functions, any thread.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/adam_step.h"
#include "core/errors.h"
#include "core/half.h"
#include "core/split_master.h"
#include "core/stochastic_rounding.h"
#include "core/stored.h"

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::adam {

// Planes of two-byte elements may lie at any even address, of four-byte ones at any multiple of four. Said to the
// compiler, too: a GPU's would move them byte by byte.
template <class T>
SLUICE_HOST_DEVICE inline T load(const std::byte* plane, int64_t i) {
  T value;
  memcpy(&value, __builtin_assume_aligned(plane + i * static_cast<int64_t>(sizeof(T)), sizeof(T)), sizeof(T));
  return value;
}
template <class T>
SLUICE_HOST_DEVICE inline void store(std::byte* plane, int64_t i, T value) {
  memcpy(__builtin_assume_aligned(plane + i * static_cast<int64_t>(sizeof(T)), sizeof(T)), &value, sizeof(T));
}

template <Precision kPrecision>
SLUICE_HOST_DEVICE inline auto load_stored_master(const AdamPlanes& planes, int64_t i) {
  if constexpr (kPrecision == Precision::kBf16) {
    return SplitMaster{load<uint16_t>(planes.weights, i), planes.residual[i]};
  } else if constexpr (kPrecision == Precision::kFp16) {
    return planes.master[i];
  } else {
    return load<float>(planes.weights, i);
  }
}
template <Precision kPrecision, class Stored>
SLUICE_HOST_DEVICE inline float master_of(Stored stored) {
  if constexpr (kPrecision == Precision::kBf16)
    return join_master(stored);
  else
    return stored;
}
template <Precision kPrecision>
SLUICE_HOST_DEVICE inline float load_master(const AdamPlanes& planes, int64_t i) {
  return master_of<kPrecision>(load_stored_master<kPrecision>(planes, i));
}

SLUICE_HOST_DEVICE constexpr bool has_two_moments(AdamKind kind) {
  return kind == AdamKind::kAdamW || kind == AdamKind::kAdam;
}

// The master, the moments and the gradient; of kinds with one moment v stays 0.
struct Element {
  float p = 0, m = 0, v = 0, g = 0;
};

// The same as it lies in the planes: reading it waits for nothing, so that a GPU has many under way.
template <Precision kPrecision, DType kGradient, DType kMoments>
struct StoredElement {
  std::conditional_t<kPrecision == Precision::kBf16, SplitMaster, float> p;
  Stored<kMoments> m, v;
  Stored<kGradient> g;

  SLUICE_HOST_DEVICE void load(const AdamStep& step, const AdamPlanes& planes, int64_t i) {
    g = adam::load<Stored<kGradient>>(planes.gradient, i);
    p = load_stored_master<kPrecision>(planes, i);
    v = {};
    if constexpr (kMoments == DType::kBf16) {
      m = planes.half_moment1[i];
      if (has_two_moments(step.kind)) v = planes.half_moment2[i];
    } else {
      m = planes.moment1[i];
      if (has_two_moments(step.kind)) v = planes.moment2[i];
    }
  }
  SLUICE_HOST_DEVICE Element element() const {
    return {.p = master_of<kPrecision>(p),
            .m = widened<kMoments>(m),
            .v = widened<kMoments>(v),
            .g = widened<kGradient>(g)};
  }
};

template <Precision kPrecision>
SLUICE_HOST_DEVICE inline void store_master(const AdamPlanes& planes, int64_t i, float master) {
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

template <DType kMoments>
SLUICE_HOST_DEVICE inline void store_moments(const AdamStep& step, const AdamPlanes& planes, int64_t i,
                                             const Element& element) {
  const bool two = has_two_moments(step.kind);
  if constexpr (kMoments == DType::kBf16) {
    const uint32_t chance = rounding_bits(step.rounding_key, planes.element + i);
    planes.half_moment1[i] = bf16_by_chance(element.m, chance & 0xffffu);
    if (two) planes.half_moment2[i] = bf16_by_chance(element.v, chance >> 16);
  } else {
    planes.moment1[i] = element.m;
    if (two) planes.moment2[i] = element.v;
  }
}

SLUICE_HOST_DEVICE inline Element with_one_moment(const AdamStep& step, Element e) {
  float g = e.g;
  if (step.kind == AdamKind::kLion) {
    const float p = e.p * step.decay;
    const float c = std::fma(step.one_minus_beta1, g - e.m, e.m);
    // A zero and a NaN stand for themselves.
    return {p - (c > 0 ? step.step_size : c < 0 ? -step.step_size : c), std::fma(step.one_minus_beta2, g - e.m, e.m)};
  }
  g = std::fma(step.weight_decay, e.p, g);
  if (step.kind == AdamKind::kAdagrad) {
    const float m = std::fma(g, g, e.m);
    return {e.p - (step.step_size * g) / (std::sqrt(m) + step.epsilon), m};
  }
  const float m = std::fma(step.momentum, e.m, g);
  return {e.p - step.step_size * m, m};
}

SLUICE_HOST_DEVICE inline Element with_two_moments(const AdamStep& step, Element e) {
  float p = e.p, g = e.g;
  if (step.kind == AdamKind::kAdamW) {
    p = p * step.decay;
  } else {
    g = std::fma(step.weight_decay, p, g);
  }
  const float m = std::fma(step.one_minus_beta1, g - e.m, e.m);
  const float v = std::fma(step.one_minus_beta2, g * g, step.beta2 * e.v);
  const float den = std::sqrt(v) / step.correction2 + step.epsilon;
  return {p - (step.step_size * m) / den, m, v};
}

SLUICE_HOST_DEVICE inline Element updated(const AdamStep& step, Element e) {
  e.g = e.g * step.scale;
  return has_two_moments(step.kind) ? with_two_moments(step, e) : with_one_moment(step, e);
}

template <Precision kPrecision, DType kMoments>
SLUICE_HOST_DEVICE inline void store_element(const AdamStep& step, const AdamPlanes& planes, int64_t i,
                                             const Element& element) {
  store_moments<kMoments>(step, planes, i, element);
  store_master<kPrecision>(planes, i, element.p);
}

// Of the master what counts is the weight: it may be too large for the weights' type where fp32 still holds it.
template <Precision kPrecision>
SLUICE_HOST_DEVICE inline bool is_finite(const Element& e) {
  constexpr float kTooLarge = too_large_for(kPrecision);
  return std::fabs(e.p) < kTooLarge && std::isfinite(e.m) && std::isfinite(e.v);
}

// What call.operator()<precision, gradient, moments>() gives for a format; a programmer's error where there is no
// kernel for it.
template <Precision kPrecision, DType kGradient, class Call>
auto with_moments(AdamFormat format, const Call& call) {
  if (format.moments == DType::kBf16) return call.template operator()<kPrecision, kGradient, DType::kBf16>();
  SLUICE_CHECK(format.moments == DType::kFp32, "moments are fp32 or bf16");
  return call.template operator()<kPrecision, kGradient, DType::kFp32>();
}
template <Precision kPrecision, class Call>
auto with_gradient(AdamFormat format, const Call& call) {
  if (format.gradient == DType::kFp32) return with_moments<kPrecision, DType::kFp32>(format, call);
  SLUICE_CHECK(format.gradient == weights_dtype(kPrecision), "a closed gradient is fp32 or of the weights' type");
  return with_moments<kPrecision, weights_dtype(kPrecision)>(format, call);
}
template <class Call>
auto with_format(AdamFormat format, const Call& call) {
  if (format.precision == Precision::kBf16) return with_gradient<Precision::kBf16>(format, call);
  if (format.precision == Precision::kFp16) return with_gradient<Precision::kFp16>(format, call);
  return with_gradient<Precision::kFp32>(format, call);
}

}  // namespace sluice::adam
