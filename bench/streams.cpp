// Compiled once per SIMD target by Highway's foreach_target; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/streams.cpp"
#include "bench/streams.h"

#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

void stream(float* data, int64_t elements) {
  const Floats df;
  const auto factor = hn::Set(df, 1.0000001f);
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(df, data + i), factor), df, data + i);
  for (; i < elements; ++i) data[i] *= 1.0000001f;
}

template <Stores kStores>
void add_half_by(float* a, const float* b, const float* c, int64_t elements) {
  const Floats df;
  const auto half = hn::Set(df, 0.5f);
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    const auto sum = hn::MulAdd(half, hn::LoadU(df, c + i), hn::LoadU(df, b + i));
    if constexpr (kStores == Stores::kCached) {
      hn::StoreU(sum, df, a + i);
    } else {
      hn::Stream(sum, df, a + i);
    }
  }
  if constexpr (kStores == Stores::kPastCaches) hwy::FlushStream();
  for (; i < elements; ++i) a[i] = b[i] + 0.5f * c[i];
}
void add_half(float* a, const float* b, const float* c, int64_t elements) {
  add_half_by<Stores::kCached>(a, b, c, elements);
}
void stream_half(float* a, const float* b, const float* c, int64_t elements) {
  add_half_by<Stores::kPastCaches>(a, b, c, elements);
}

// Four independent sums: throughput, not latency.
float divide(const float* values, int64_t elements) {
  const Floats df;
  const auto c = hn::Load(df, values);
  auto sum0 = hn::Zero(df), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const auto next = [&](size_t k) HWY_ATTR { return hn::Div(c, hn::Div(hn::Sqrt(hn::LoadU(df, values + k)), c)); };
  for (int64_t i = 0; i < elements; i += 4 * kLanes) {
    const auto k = static_cast<size_t>(i / (4 * kLanes)) % 61;  // values that the compiler cannot foresee
    sum0 = hn::Add(sum0, next(k));
    sum1 = hn::Add(sum1, next(k + 1));
    sum2 = hn::Add(sum2, next(k + 2));
    sum3 = hn::Add(sum3, next(k + 3));
  }
  return hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice {

HWY_EXPORT(stream);
HWY_EXPORT(add_half);
HWY_EXPORT(stream_half);
HWY_EXPORT(divide);

void stream_in_place(float* data, int64_t elements) { HWY_DYNAMIC_DISPATCH(stream)(data, elements); }
void triad(float* a, std::span<const float> b, std::span<const float> c, Stores stores) {
  const auto elements = static_cast<int64_t>(b.size());
  if (stores == Stores::kCached) return HWY_DYNAMIC_DISPATCH(add_half)(a, b.data(), c.data(), elements);
  HWY_DYNAMIC_DISPATCH(stream_half)(a, b.data(), c.data(), elements);
}
float divide_and_root(int64_t elements) {
  alignas(128) float values[160];
  for (int i = 0; i < 160; ++i) values[i] = 1.5f + 0.01f * static_cast<float>(i);
  return HWY_DYNAMIC_DISPATCH(divide)(values, elements);
}

}  // namespace sluice
#endif
