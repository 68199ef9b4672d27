// Compiled once per SIMD target by Highway's foreach_target; the best one is chosen at run time.
#define HWY_WANT_AVX3_DL  // carry-less products of whole vectors
#include "core/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/adam_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <span>
#include <type_traits>

#include "core/adam_element.h"
#include "core/checksum.h"
#include "core/errors.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/adam_out_of_place.h"
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

#include "cpu_adam/plane_lanes.inl"

struct StepVectors {
  F scale, decay, weight_decay, one_minus_beta1, beta2, one_minus_beta2, correction2, epsilon, step_size, momentum;
  U rounding_key;
};
HWY_INLINE StepVectors vectors_of(const AdamStep& step) {
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

using Magnitudes = hn::Vec<hn::RebindToSigned<Floats>>;  // the greatest patterns so far
// Of what must be finite.
struct Greatest {
  Magnitudes masters, moments;
};

// What an update begins with and ends with.
struct Lanes {
  F p, g;
  Magnitudes moments;
};

// Two moments. m needs no look: from a non-finite m comes a non-finite p, whatever the denominator; and so does it from
// a v below zero.
template <AdamKind kKind, DType kMoments, class Way>
HWY_INLINE Lanes with_two_moments(const StepVectors& step, const Places<Way>& places, int64_t i, Lanes lanes) {
  const Floats df;
  const hn::RebindToSigned<Floats> di;
  const auto& [from, to] = places;
  auto [p, g, moments] = lanes;
  if constexpr (kKind == AdamKind::kAdamW) {
    p = hn::Mul(p, step.decay);
  } else {
    g = fused_multiply_add(step.weight_decay, p, g);
  }
  F m = load_moment<kMoments>(from.moment1, from.half_moment1, i);
  F v = load_moment<kMoments>(from.moment2, from.half_moment2, i);
  m = fused_multiply_add(step.one_minus_beta1, hn::Sub(g, m), m);
  v = fused_multiply_add(step.one_minus_beta2, hn::Mul(g, g), hn::Mul(step.beta2, v));
  const F den = hn::Add(hn::Div(hn::Sqrt(v), step.correction2), step.epsilon);
  p = hn::Sub(p, hn::Div(hn::Mul(step.step_size, m), den));
  if constexpr (kMoments == DType::kFp32) {
    places.store(m, df, to.moment1 + i);
    places.store(v, df, to.moment2 + i);
  } else {
    const U chance = rounding_lanes(step.rounding_key, from, i);
    store_by_chance(m, hn::And(chance, hn::Set(Patterns(), 0xffffu)), to.half_moment1 + i);
    store_by_chance(v, hn::ShiftRight<16>(chance), to.half_moment2 + i);
  }
  return {p, g, hn::Max(moments, hn::BitCast(di, v))};
}

template <AdamKind kKind, DType kMoments, class Way>
HWY_INLINE Lanes with_one_moment(const StepVectors& step, const Places<Way>& places, int64_t i, Lanes lanes) {
  const Floats df;
  const hn::RebindToSigned<Floats> di;
  const auto& [from, to] = places;
  auto [p, g, moments] = lanes;
  F m = load_moment<kMoments>(from.moment1, from.half_moment1, i);
  if constexpr (kKind == AdamKind::kLion) {
    const F way = hn::Sub(g, m);
    const F c = fused_multiply_add(step.one_minus_beta1, way, m);
    const F signed_step = hn::Xor(step.step_size, hn::And(c, hn::SignBit(df)));
    // A zero and a NaN stand for themselves.
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
    places.store(m, df, to.moment1 + i);
  } else {
    const U chance = rounding_lanes(step.rounding_key, from, i);
    store_by_chance(m, hn::And(chance, hn::Set(Patterns(), 0xffffu)), to.half_moment1 + i);
  }
  return {p, g, hn::Max(moments, hn::And(hn::BitCast(di, m), hn::Set(di, 0x7fffffff)))};
}

// One vector at element i, whose new p is returned and not yet stored.
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind, class Way>
HWY_INLINE F updated(const StepVectors& step, const Places<Way>& places, int64_t i, Greatest& greatest) {
  const Floats df;
  const Patterns du;
  const hn::RebindToSigned<Patterns> di;
  const U gradient = load_float_bits<kGradient>(du, places.from.gradient + i * bytes_of(kGradient));
  Lanes lanes{.p = load_master<kPrecision>(places.from, i),
              .g = hn::Mul(hn::BitCast(df, gradient), step.scale),
              .moments = greatest.moments};
  if constexpr (adam::has_two_moments(kKind)) {
    lanes = with_two_moments<kKind, kMoments>(step, places, i, lanes);
  } else {
    lanes = with_one_moment<kKind, kMoments>(step, places, i, lanes);
  }
  const auto master = hn::And(hn::BitCast(di, lanes.p), hn::Set(di, 0x7fffffff));
  greatest = {hn::Max(greatest.masters, master), lanes.moments};
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
  constexpr bool kTwo = adam::has_two_moments(kKind);
  if constexpr (kMoments == DType::kFp32) {
    prefetch_block<4>(planes.moment1, i);
    if constexpr (kTwo) prefetch_block<4>(planes.moment2, i);
  } else {
    prefetch_block<2>(planes.half_moment1, i);
    if constexpr (kTwo) prefetch_block<2>(planes.half_moment2, i);
  }
  prefetch_block<bytes_of(kGradient)>(planes.gradient, i);
}

struct NoFolds {
  template <class Way>
  HWY_INLINE NoFolds(const AdamPlanes&, const Way&) {}
  HWY_INLINE void before(int64_t) {}
  HWY_INLINE void after(int64_t) {}
  HWY_INLINE void finish() {}
};
// Lines just written are summed this many elements later, when they have left the store queue.
constexpr int64_t kBehind = 2 * kBlock;

// Whole blocks from element 0 on; returns the elements done.
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind, class Folds, class Way>
HWY_INLINE int64_t update_blocks(const StepVectors& step, const AdamRun& run, const Way& way, Greatest& greatest) {
  // Copies of our own: the stores cannot change their pointers.
  const AdamPlanes from = run.planes, to = written(from, way);
  const Places<Way> places{from, kStreams<Way> ? to : from};
  Folds folds(from, way);
  int64_t i = 0;
  while (i + kBlock <= run.elements) {
    prefetch_planes<kPrecision, kGradient, kMoments, kKind>(from, i + kAhead);
    folds.before(i);
    if (i >= kBehind) folds.after(i - kBehind);
    for (const int64_t end = i + kBlock; i < end; i += 2 * kLanes) {
      const F low = updated<kPrecision, kGradient, kMoments, kKind>(step, places, i, greatest);
      const F high = updated<kPrecision, kGradient, kMoments, kKind>(step, places, i + kLanes, greatest);
      store_masters<kPrecision>(places, i, low, high);
    }
  }
  for (int64_t behind = std::max<int64_t>(0, i - kBehind); behind < i; behind += kBlock) folds.after(behind);
  folds.finish();
  return i;
}

HWY_INLINE Greatest no_magnitudes() {
  const hn::RebindToSigned<Floats> di;
  return {hn::Zero(di), hn::Zero(di)};
}
// A master is finite as a weight (adam::is_finite).
template <Precision kPrecision>
HWY_INLINE bool all_finite(const Greatest& greatest) {
  const hn::RebindToSigned<Floats> di;
  constexpr auto kTooLarge = std::bit_cast<int32_t>(too_large_for(kPrecision));
  return hn::AllTrue(
      di, hn::And(hn::Lt(greatest.masters, hn::Set(di, kTooLarge)), hn::Lt(greatest.moments, hn::Set(di, 0x7f800000))));
}

template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
Finite update_range(const AdamRun& run, const InPlace& way) {
  const StepVectors step = vectors_of(run.step);
  const Places<InPlace> places{run.planes, run.planes};
  Greatest greatest = no_magnitudes();
  int64_t i = update_blocks<kPrecision, kGradient, kMoments, kKind, NoFolds>(step, run, way, greatest);
  for (; i + kLanes <= run.elements; i += kLanes) {
    const F master = updated<kPrecision, kGradient, kMoments, kKind>(step, places, i, greatest);
    store_master<kPrecision>(places, i, master);
  }
  const bool finite = all_finite<kPrecision>(greatest);
  if (i >= run.elements) return finite ? Finite::kYes : Finite::kNo;
  const AdamFormat format{kPrecision, kGradient, kMoments};
  const Finite tail = adam_scalar(format)(run.step, planes_at(run.planes, format, i), run.elements - i);
  return finite ? tail : Finite::kNo;
}

// Of whole blocks.
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
Finite update_range(const AdamRun& run, const OutOfPlace& way) {
  Greatest greatest = no_magnitudes();
  update_blocks<kPrecision, kGradient, kMoments, kKind, NoFolds>(vectors_of(run.step), run, way, greatest);
  return all_finite<kPrecision>(greatest) ? Finite::kYes : Finite::kNo;
}

#if SLUICE_TARGET_FOLDS
template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements);

template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind>
Finite update_range(const AdamRun& run, const AdamSums& sums) {
  const StepVectors step = vectors_of(run.step);
  Greatest greatest = no_magnitudes();
  using Folds = PlaneFolds<kPrecision, kGradient, kMoments, kKind, kBlock>;
  const int64_t done = update_blocks<kPrecision, kGradient, kMoments, kKind, Folds>(step, run, sums, greatest);
  const AdamFormat format{kPrecision, kGradient, kMoments};
  const AdamRun rest{run.step, planes_at(run.planes, format, done), run.elements - done};
  const Finite tail = update_in_tiles(update<kPrecision, kGradient, kMoments>, format, rest, sums);
  return all_finite<kPrecision>(greatest) ? tail : Finite::kNo;
}
#endif

template <Precision kPrecision, DType kGradient, DType kMoments, class Way>
Finite update_kind(const AdamRun& run, const Way& way) {
  switch (run.step.kind) {
    case AdamKind::kAdamW:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdamW>(run, way);
    case AdamKind::kAdam:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdam>(run, way);
    case AdamKind::kAdagrad:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kAdagrad>(run, way);
    case AdamKind::kLion:
      return update_range<kPrecision, kGradient, kMoments, AdamKind::kLion>(run, way);
    case AdamKind::kSgd:
      break;
  }
  return update_range<kPrecision, kGradient, kMoments, AdamKind::kSgd>(run, way);
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements) {
  return update_kind<kPrecision, kGradient, kMoments>({step, planes, elements}, InPlace());
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update_and_sum(const AdamStep& step, const AdamPlanes& planes, int64_t elements, const AdamSums& sums) {
#if SLUICE_TARGET_FOLDS
  const AdamRun run{step, planes, elements};
  return takes_none(sums) ? update_kind<kPrecision, kGradient, kMoments>(run, InPlace())
                          : update_kind<kPrecision, kGradient, kMoments>(run, sums);
#else
  return update_in_tiles(update<kPrecision, kGradient, kMoments>, {kPrecision, kGradient, kMoments},
                         {step, planes, elements}, sums);
#endif
}

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update_out_of_place(const AdamStep& step, const AdamPlanes& from, const AdamPlanes& to, int64_t elements) {
  constexpr AdamFormat kFormat{kPrecision, kGradient, kMoments};
  const int64_t head = std::min(elements, elements_before_a_line(kFormat, to));
  const int64_t tail = head + (elements - head) / kBlock * kBlock;
  Finite finite = Finite::kYes;
  const auto update_copy = [&](int64_t first, int64_t end) {
    if (first == end) return;
    const AdamRun run{step, planes_at(from, kFormat, first), end - first};
    const AdamPlanes there = planes_at(to, kFormat, first);
    if (update_copies(update<kPrecision, kGradient, kMoments>, kFormat, run, there) == Finite::kNo)
      finite = Finite::kNo;
  };
  update_copy(0, head);
  const AdamPlanes there = planes_at(to, kFormat, head);
  const AdamRun blocks{step, planes_at(from, kFormat, head), tail - head};
  if (update_kind<kPrecision, kGradient, kMoments>(blocks, OutOfPlace{there}) == Finite::kNo) finite = Finite::kNo;
  update_copy(tail, elements);
  hwy::FlushStream();  // other threads may read it from now on
  return finite;
}

struct Kernels {
  AdamKernel plain;
  SummingAdamKernel summing;
  OutOfPlaceAdamKernel out_of_place;
};

Kernels kernels_of(AdamFormat format) {
  return adam::with_format(format, []<Precision kPrecision, DType kGradient, DType kMoments>() {
    return Kernels{update<kPrecision, kGradient, kMoments>, update_and_sum<kPrecision, kGradient, kMoments>,
                   update_out_of_place<kPrecision, kGradient, kMoments>};
  });
}

AdamKernel kernel_of(AdamFormat format) { return kernels_of(format).plain; }
SummingAdamKernel summing_kernel_of(AdamFormat format) { return kernels_of(format).summing; }
OutOfPlaceAdamKernel out_of_place_kernel_of(AdamFormat format) { return kernels_of(format).out_of_place; }

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
HWY_EXPORT(out_of_place_kernel_of);

AdamKernel adam_simd(AdamFormat format) { return HWY_DYNAMIC_DISPATCH(kernel_of)(format); }
SummingAdamKernel summing_adam_simd(AdamFormat format) { return HWY_DYNAMIC_DISPATCH(summing_kernel_of)(format); }
OutOfPlaceAdamKernel out_of_place_adam_simd(AdamFormat format) {
  return HWY_DYNAMIC_DISPATCH(out_of_place_kernel_of)(format);
}

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
OutOfPlaceAdamKernel out_of_place_adam_simd_for(AdamFormat format, std::string_view target) {
  const auto of = entry_of(HWY_DISPATCH_TABLE(out_of_place_kernel_of), target);
  return of ? of(format) : nullptr;
}

}  // namespace sluice
#endif
