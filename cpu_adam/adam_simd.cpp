// Compiled once per SIMD target by Highway's foreach_target; the best one is chosen at run time.
#define HWY_WANT_AVX3_DL  // carry-less products of whole vectors
// Vectors here have a size that the compiler knows: CPUs with these run NEON.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/adam_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <span>

#include "core/checksum.h"
#include "core/errors.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/adam_sums.h"

HWY_BEFORE_NAMESPACE();
namespace sluice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#include "core/half_lanes.inl"
#include "cpu_adam/plane_folds.inl"

using Floats = hn::ScalableTag<float>;
using Patterns = hn::RebindToUnsigned<Floats>;
using F = hn::Vec<Floats>;
using U = hn::Vec<Patterns>;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// Rounded once. Highway's MulAdd multiplies, rounds and adds where the target has no such instruction.
HWY_INLINE F fused_multiply_add(F a, F b, F c) {
#if !HWY_NATIVE_FMA
  const Floats df;
  HWY_ALIGN float lanes[3][hn::MaxLanes(df)];
  hn::Store(a, df, lanes[0]);
  hn::Store(b, df, lanes[1]);
  hn::Store(c, df, lanes[2]);
  for (size_t i = 0; i < hn::Lanes(df); ++i) lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], lanes[2][i]);
  return hn::Load(df, lanes[0]);
#else
  return hn::MulAdd(a, b, c);
#endif
}

template <Precision kPrecision>
HWY_INLINE F load_master(const AdamPlanes& planes, int64_t i) {
  const Floats df;
  const Patterns du;
  if constexpr (kPrecision == Precision::kBf16) {
    const hn::RebindToSigned<Patterns> di;
    const hn::Rebind<int16_t, Floats> dh;
    const U high = load_float_bits<DType::kBf16>(du, planes.weights + i * 2);
    const auto low = hn::PromoteTo(di, hn::LoadU(dh, planes.residual + i));
    return hn::BitCast(df, hn::Add(high, hn::BitCast(du, low)));
  } else if constexpr (kPrecision == Precision::kFp16) {
    return hn::LoadU(df, planes.master + i);
  } else {
    return hn::BitCast(df, load_float_bits<DType::kFp32>(du, planes.weights + i * 4));
  }
}

template <Precision kPrecision>
HWY_INLINE void store_master(const AdamPlanes& planes, int64_t i, F master) {
  const Floats df;
  const Patterns du;
  const U bits = hn::BitCast(du, master);
  if constexpr (kPrecision == Precision::kBf16) {
    const auto nan = magnitude_above(du, hn::And(bits, hn::Set(du, 0x7fffffffu)), 0x7f800000u);
    const U quiet = hn::Or(bits, hn::Set(du, 0x400000u));
    const U rounded = hn::Add(bits, hn::Set(du, 0x8000u));
    store_halves(du, hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded)), planes.weights + i * 2);
    // bits - (high << 16) modulo 2^16 is the low half itself.
    store_low_halves(du, bits, planes.residual + i);
  } else if constexpr (kPrecision == Precision::kFp16) {
    hn::StoreU(master, df, planes.master + i);
    store_float_bits<DType::kFp16>(du, bits, planes.weights + i * 2);
  } else {
    store_float_bits<DType::kFp32>(du, bits, planes.weights + i * 4);
  }
}

// Two vectors that follow each other. Halves with one look for NaNs (or for infinities that cancel out, which need no
// care) and each plane in one store: instructions bound the pass in cache.
template <Precision kPrecision>
HWY_INLINE void store_masters(const AdamPlanes& planes, int64_t i, F low, F high) {
#if HWY_TARGET != HWY_SCALAR  // which has no pairs of lanes
  if constexpr (kPrecision == Precision::kBf16) {
    const Floats df;
    const Patterns du;
    const hn::Repartition<uint16_t, Patterns> dh;
    if (HWY_LIKELY(hn::AllFalse(df, hn::IsNaN(hn::Add(low, high))))) {
      const U low_bits = hn::BitCast(du, low), high_bits = hn::BitCast(du, high), half = hn::Set(du, 0x8000u);
      const U low_rounded = hn::Add(low_bits, half), high_rounded = hn::Add(high_bits, half);
      hn::StoreU(hn::ConcatOdd(dh, hn::BitCast(dh, high_rounded), hn::BitCast(dh, low_rounded)), dh,
                 reinterpret_cast<uint16_t*>(planes.weights) + i);
      hn::StoreU(hn::ConcatEven(dh, hn::BitCast(dh, high_bits), hn::BitCast(dh, low_bits)), dh,
                 reinterpret_cast<uint16_t*>(planes.residual) + i);
      return;
    }
  }
#endif
  store_master<kPrecision>(planes, i, low);
  store_master<kPrecision>(planes, i + kLanes, high);
}

// A moment's vector at element i, from the plane of its dtype.
template <DType kMoments>
HWY_INLINE F load_moment(const float* wide, const uint16_t* halves, int64_t i) {
  const Floats df;
  const Patterns du;
  if constexpr (kMoments == DType::kFp32) return hn::LoadU(df, wide + i);
  return hn::BitCast(df, load_float_bits<DType::kBf16>(du, reinterpret_cast<const std::byte*>(halves + i)));
}

// rounding_bits (stochastic_rounding.h) of the elements from i on.
HWY_INLINE U rounding_lanes(U key, const AdamPlanes& planes, int64_t i) {
  const Patterns du;
  const U elements = hn::Iota(du, static_cast<uint32_t>(planes.element + i));
  U x = hn::Add(hn::Mul(elements, hn::Set(du, 0x9e3779b1u)), key);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, 0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

// bf16_by_chance (stochastic_rounding.h).
HWY_INLINE void store_by_chance(F value, U chance, uint16_t* to) {
  const Patterns du;
  const U bits = hn::BitCast(du, value), magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const U nan = hn::Or(bits, hn::Set(du, 0x400000u));
  U rounded = hn::IfThenElse(magnitude_above(du, magnitude, 0x7f7effffu), bits, hn::Add(bits, chance));
  rounded = hn::IfThenElse(magnitude_above(du, magnitude, 0x7f800000u), nan, rounded);
  store_halves(du, hn::ShiftRight<16>(rounded), to);
}

struct StepLanes {
  F scale, decay, weight_decay, one_minus_beta1, beta2, one_minus_beta2, correction2, epsilon, step_size, momentum;
  U rounding_key;
};
HWY_INLINE StepLanes lanes_of(const AdamStep& step) {
  const Floats df;
  return {.scale = hn::Set(df, step.scale),
          .decay = hn::Set(df, step.decay),
          .weight_decay = hn::Set(df, step.weight_decay),
          .one_minus_beta1 = hn::Set(df, step.one_minus_beta1),
          .beta2 = hn::Set(df, step.beta2),
          .one_minus_beta2 = hn::Set(df, step.one_minus_beta2),
          .correction2 = hn::Set(df, step.correction2),
          .epsilon = hn::Set(df, step.epsilon),
          .step_size = hn::Set(df, step.step_size),
          .momentum = hn::Set(df, step.momentum),
          .rounding_key = hn::Set(Patterns(), step.rounding_key)};
}

// What an update begins with and ends with.
struct Lanes {
  F p, g;
  hn::Vec<hn::RebindToSigned<Floats>> top;  // the greatest pattern so far of what must be finite
};

// Two moments. m needs no look: from a non-finite m comes a non-finite p, whatever the denominator; and so does it from
// a v below zero.
template <AdamKind kKind, DType kMoments>
HWY_INLINE Lanes with_two_moments(const StepLanes& step, const AdamPlanes& planes, int64_t i, Lanes from) {
  const Floats df;
  const hn::RebindToSigned<Floats> di;
  auto [p, g, top] = from;
  if constexpr (kKind == AdamKind::kAdamW) {
    p = hn::Mul(p, step.decay);
  } else {
    g = fused_multiply_add(step.weight_decay, p, g);
  }
  F m = load_moment<kMoments>(planes.moment1, planes.half_moment1, i);
  F v = load_moment<kMoments>(planes.moment2, planes.half_moment2, i);
  m = fused_multiply_add(step.one_minus_beta1, hn::Sub(g, m), m);
  v = fused_multiply_add(step.one_minus_beta2, hn::Mul(g, g), hn::Mul(step.beta2, v));
  const F den = hn::Add(hn::Div(hn::Sqrt(v), step.correction2), step.epsilon);
  p = hn::Sub(p, hn::Div(hn::Mul(step.step_size, m), den));
  if constexpr (kMoments == DType::kFp32) {
    hn::StoreU(m, df, planes.moment1 + i);
    hn::StoreU(v, df, planes.moment2 + i);
  } else {
    const U chance = rounding_lanes(step.rounding_key, planes, i);
    store_by_chance(m, hn::And(chance, hn::Set(Patterns(), 0xffffu)), planes.half_moment1 + i);
    store_by_chance(v, hn::ShiftRight<16>(chance), planes.half_moment2 + i);
  }
  return {p, g, hn::Max(top, hn::BitCast(di, v))};
}

template <AdamKind kKind, DType kMoments>
HWY_INLINE Lanes with_one_moment(const StepLanes& step, const AdamPlanes& planes, int64_t i, Lanes from) {
  const Floats df;
  const hn::RebindToSigned<Floats> di;
  auto [p, g, top] = from;
  F m = load_moment<kMoments>(planes.moment1, planes.half_moment1, i);
  if constexpr (kKind == AdamKind::kLion) {
    const F way = hn::Sub(g, m);
    const F c = fused_multiply_add(step.one_minus_beta1, way, m);
    const F signed_step = hn::CopySignToAbs(step.step_size, c);  // a zero and a NaN stand for themselves
    p = hn::Sub(hn::Mul(p, step.decay), hn::IfThenElse(hn::Gt(hn::Abs(c), hn::Zero(df)), signed_step, c));
    m = fused_multiply_add(step.one_minus_beta2, way, m);
  } else {
    g = fused_multiply_add(step.weight_decay, p, g);
    if constexpr (kKind == AdamKind::kAdagrad) {
      m = fused_multiply_add(g, g, m);
      p = hn::Sub(p, hn::Div(hn::Mul(step.step_size, g), hn::Add(hn::Sqrt(m), step.epsilon)));
    } else {
      m = fused_multiply_add(step.momentum, m, g);
      p = hn::Sub(p, hn::Mul(step.step_size, m));
    }
  }
  if constexpr (kMoments == DType::kFp32) {
    hn::StoreU(m, df, planes.moment1 + i);
  } else {
    const U chance = rounding_lanes(step.rounding_key, planes, i);
    store_by_chance(m, hn::And(chance, hn::Set(Patterns(), 0xffffu)), planes.half_moment1 + i);
  }
  return {p, g, hn::Max(top, hn::And(hn::BitCast(di, m), hn::Set(di, 0x7fffffff)))};
}

// One vector at element i, whose new p is returned and not yet stored. `largest`: the greatest pattern so far of what
// must be finite.
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
HWY_INLINE F updated(const StepLanes& step, const AdamPlanes& planes, int64_t i, U& largest) {
  const Floats df;
  const Patterns du;
  const hn::RebindToSigned<Patterns> di;
  const U gradient = load_float_bits<kGradient>(du, planes.gradient + i * bytes_of(kGradient));
  Lanes lanes{.p = load_master<kPrecision>(planes, i),
              .g = hn::Mul(hn::BitCast(df, gradient), step.scale),
              .top = hn::BitCast(di, largest)};
  if constexpr (kKind == AdamKind::kAdamW || kKind == AdamKind::kAdam) {
    lanes = with_two_moments<kKind, kMoments>(step, planes, i, lanes);
  } else {
    lanes = with_one_moment<kKind, kMoments>(step, planes, i, lanes);
  }
  largest = hn::BitCast(du, hn::Max(lanes.top, hn::And(hn::BitCast(di, lanes.p), hn::Set(di, 0x7fffffff))));
  return lanes.p;
}

// Five or six streams, each read and most written, are more than the hardware's prefetchers keep up with. Asking for
// lines past the end of a plane does no harm.
constexpr int64_t kBlock = 32;   // elements: one cache line of halves, two of fp32
constexpr int64_t kAhead = 512;  // elements to prefetch ahead: measured best (bench/README.md)
template <int64_t kElementBytes>
HWY_INLINE void prefetch_block(const void* plane, int64_t i) {
  const auto* line = static_cast<const std::byte*>(plane) + i * kElementBytes;
  hwy::Prefetch(line);
  if constexpr (kElementBytes == 4) hwy::Prefetch(line + 64);
}
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
HWY_INLINE void prefetch_planes(const AdamPlanes& planes, int64_t i) {
  prefetch_block<bytes_of(weights_dtype(kPrecision))>(planes.weights, i);
  if constexpr (kPrecision == Precision::kBf16) prefetch_block<2>(planes.residual, i);
  if constexpr (kPrecision == Precision::kFp16) prefetch_block<4>(planes.master, i);
  constexpr bool kTwo = kKind == AdamKind::kAdamW || kKind == AdamKind::kAdam;
  if constexpr (kMoments == DType::kFp32) {
    prefetch_block<4>(planes.moment1, i);
    if constexpr (kTwo) prefetch_block<4>(planes.moment2, i);
  } else {
    prefetch_block<2>(planes.half_moment1, i);
    if constexpr (kTwo) prefetch_block<2>(planes.half_moment2, i);
  }
  prefetch_block<bytes_of(kGradient)>(planes.gradient, i);
}

struct NoSums {};
struct NoFolds {
  HWY_INLINE NoFolds(const AdamPlanes&, NoSums) {}
  HWY_INLINE void before(int64_t) {}
  HWY_INLINE void after(int64_t) {}
  HWY_INLINE void finish() {}
};
// Lines just written are summed this many elements later, when they have left the store queue.
constexpr int64_t kBehind = 2 * kBlock;

// Whole blocks from element 0 on; returns the elements done. `largest` as in updated().
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind, class Folds, class Sums>
HWY_INLINE int64_t update_blocks(const StepLanes& step, const AdamRun& run, const Sums& sums, U& largest) {
  const AdamPlanes planes = run.planes;  // a copy of our own: the stores cannot change its pointers
  Folds folds(planes, sums);
  int64_t i = 0;
  while (i + kBlock <= run.elements) {
    prefetch_planes<kPrecision, kGradient, kMoments, kKind>(planes, i + kAhead);
    folds.before(i);
    if (i >= kBehind) folds.after(i - kBehind);
    for (const int64_t end = i + kBlock; i < end; i += 2 * kLanes) {
      const F low = updated<kPrecision, kGradient, kMoments, kKind>(step, planes, i, largest);
      const F high = updated<kPrecision, kGradient, kMoments, kKind>(step, planes, i + kLanes, largest);
      store_masters<kPrecision>(planes, i, low, high);
    }
  }
  for (int64_t behind = std::max<int64_t>(0, i - kBehind); behind < i; behind += kBlock) folds.after(behind);
  folds.finish();
  return i;
}

HWY_INLINE bool all_finite(U largest) {
  const Patterns du;
  return hn::AllFalse(du, magnitude_above(du, largest, 0x7f7fffffu));
}

template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
Finite update_range(const AdamRun& run, NoSums) {
  const StepLanes step = lanes_of(run.step);
  U largest = hn::Zero(Patterns());
  int64_t i = update_blocks<kPrecision, kGradient, kMoments, kKind, NoFolds>(step, run, NoSums(), largest);
  for (; i + kLanes <= run.elements; i += kLanes) {
    const F master = updated<kPrecision, kGradient, kMoments, kKind>(step, run.planes, i, largest);
    store_master<kPrecision>(run.planes, i, master);
  }
  const bool finite = all_finite(largest);
  if (i >= run.elements) return finite ? Finite::kYes : Finite::kNo;
  const AdamFormat format{kPrecision, kGradient, kMoments};
  const Finite tail = adam_scalar(format)(run.step, planes_at(run.planes, format, i), run.elements - i);
  return finite ? tail : Finite::kNo;
}

#if SLUICE_TARGET_FOLDS
template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements);

template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
Finite update_range(const AdamRun& run, const AdamSums& sums) {
  const StepLanes step = lanes_of(run.step);
  U largest = hn::Zero(Patterns());
  using Folds = PlaneFolds<kPrecision, kGradient, kMoments, kKind, kBlock>;
  const int64_t done = update_blocks<kPrecision, kGradient, kMoments, kKind, Folds>(step, run, sums, largest);
  const AdamFormat format{kPrecision, kGradient, kMoments};
  const AdamRun rest{run.step, planes_at(run.planes, format, done), run.elements - done};
  const Finite tail = update_in_tiles(update<kPrecision, kGradient, kMoments>, format, rest, sums);
  return all_finite(largest) ? tail : Finite::kNo;
}
#endif

template <Precision kPrecision, DType kGradient, DType kMoments, class Sums>
Finite update_kind(const AdamRun& run, const Sums& sums) {
  switch (run.step.kind) {
    case AdamKind::kAdamW:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdamW>(run, sums);
    case AdamKind::kAdam:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdam>(run, sums);
    case AdamKind::kAdagrad:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdagrad>(run, sums);
    case AdamKind::kLion:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kLion>(run, sums);
    case AdamKind::kSgd:
      break;
  }
  return update_range<kPrecision, kGradient, kMoments, AdamKind::kSgd>(run, sums);
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements) {
  return update_kind<kPrecision, kGradient, kMoments>({step, planes, elements}, NoSums());
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update_and_sum(const AdamStep& step, const AdamPlanes& planes, int64_t elements, const AdamSums& sums) {
#if SLUICE_TARGET_FOLDS
  const AdamRun run{step, planes, elements};
  return takes_none(sums) ? update_kind<kPrecision, kGradient, kMoments>(run, NoSums())
                          : update_kind<kPrecision, kGradient, kMoments>(run, sums);
#else
  return update_in_tiles(update<kPrecision, kGradient, kMoments>, {kPrecision, kGradient, kMoments},
                         {step, planes, elements}, sums);
#endif
}

struct Kernels {
  AdamKernel plain;
  SummingAdamKernel summing;
};

template <Precision kPrecision, DType kGradient>
Kernels kernels_of(DType moments) {
  if (moments == DType::kBf16)
    return {update<kPrecision, kGradient, DType::kBf16>, update_and_sum<kPrecision, kGradient, DType::kBf16>};
  return {update<kPrecision, kGradient, DType::kFp32>, update_and_sum<kPrecision, kGradient, DType::kFp32>};
}

Kernels kernels_of(AdamFormat format) {
  check_format(format);
  const bool fp32_gradient = format.gradient == DType::kFp32;
  switch (format.precision) {
    case Precision::kBf16:
      return fp32_gradient ? kernels_of<Precision::kBf16, DType::kFp32>(format.moments)
                           : kernels_of<Precision::kBf16, DType::kBf16>(format.moments);
    case Precision::kFp16:
      return fp32_gradient ? kernels_of<Precision::kFp16, DType::kFp32>(format.moments)
                           : kernels_of<Precision::kFp16, DType::kFp16>(format.moments);
    case Precision::kFp32:
      break;
  }
  return kernels_of<Precision::kFp32, DType::kFp32>(format.moments);
}

AdamKernel kernel_of(AdamFormat format) { return kernels_of(format).plain; }
SummingAdamKernel summing_kernel_of(AdamFormat format) { return kernels_of(format).summing; }

}  // namespace HWY_NAMESPACE
}  // namespace sluice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice {
namespace {

// Of one of Highway's targets by its name, from a dispatch table.
template <class Table>
auto entry_of(const Table& table, std::string_view name) -> std::remove_cvref_t<decltype(table[0])> {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::ChosenTarget chosen;
    chosen.Update(target);
    return table[chosen.GetIndex()];
  }
  return nullptr;
}

}  // namespace

HWY_EXPORT(kernel_of);
HWY_EXPORT(summing_kernel_of);

AdamKernel adam_simd(AdamFormat format) { return HWY_DYNAMIC_DISPATCH(kernel_of)(format); }
SummingAdamKernel summing_adam_simd(AdamFormat format) { return HWY_DYNAMIC_DISPATCH(summing_kernel_of)(format); }

// Highway numbers its targets so that better ones have lower bits.
std::vector<std::string_view> adam_simd_targets() {
  std::vector<std::string_view> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

AdamKernel adam_simd_for(AdamFormat format, std::string_view target) {
  const auto of = entry_of(HWY_DISPATCH_TABLE(kernel_of), target);
  return of ? of(format) : nullptr;
}
SummingAdamKernel summing_adam_simd_for(AdamFormat format, std::string_view target) {
  const auto of = entry_of(HWY_DISPATCH_TABLE(summing_kernel_of), target);
  return of ? of(format) : nullptr;
}

}  // namespace sluice
#endif
