// Compiled once per SIMD target by Highway's foreach_target; the best one is chosen at run time.
#include "core/vector_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/gradient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "offload/gradient_kernels.h"

#ifndef SLUICE_OFFLOAD_GRADIENT_KERNEL_TABLE
#define SLUICE_OFFLOAD_GRADIENT_KERNEL_TABLE
namespace sluice {
namespace {

constexpr int64_t kTile = kNormTileElements;

// One target's kernels for one dtype.
struct KernelTable {
  void (*add)(float* open, const std::byte* gradient, int64_t elements, Contribution which);
  void (*round_scaled)(const float* from, float scale, std::byte* to, int64_t elements);
  double (*close_tile)(const float* from, float scale, std::byte* to, int64_t elements);  // rounds and sums
};

}  // namespace
}  // namespace sluice
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#include "core/half_lanes.inl"

using Floats = hn::ScalableTag<float>;
using Patterns = hn::RebindToUnsigned<Floats>;
using Doubles = hn::ScalableTag<double>;
constexpr int64_t kFloatLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
constexpr int64_t kDoubleLanes = static_cast<int64_t>(hn::MaxLanes(Doubles()));
constexpr int64_t kRowVectors = kNormLanes / kFloatLanes;

template <DType kType>
void add(float* open, const std::byte* gradient, int64_t elements, Contribution which) {
  const Floats df;
  const Patterns du;
  const auto sum = [&](float* at, const std::byte* from) HWY_ATTR {
    const auto value = hn::BitCast(df, load_float_bits<kType>(du, from));
    hn::StoreU(which == Contribution::kFirst ? value : hn::Add(hn::LoadU(df, at), value), df, at);
  };
  int64_t i = 0;
  for (; i + kFloatLanes <= elements; i += kFloatLanes) sum(open + i, gradient + i * bytes_of(kType));
  if (i >= elements) return;
  float open_tail[kFloatLanes] = {};
  std::byte tail[kFloatLanes * 4] = {};
  const size_t rest = static_cast<size_t>(elements - i);
  std::memcpy(open_tail, open + i, rest * 4);
  std::memcpy(tail, gradient + i * bytes_of(kType), rest * static_cast<size_t>(bytes_of(kType)));
  sum(open_tail, tail);
  std::memcpy(open + i, open_tail, rest * 4);
}

// Each vector is read before it is written, in ascending order: `to` may be `from` or lie before it.
template <DType kType>
void round_scaled(const float* from, float scale, std::byte* to, int64_t elements) {
  const Floats df;
  const Patterns du;
  const auto factor = hn::Set(df, scale);
  const auto round = [&](const float* at, std::byte* out) HWY_ATTR {
    store_float_bits<kType>(du, hn::BitCast(du, hn::Mul(hn::LoadU(df, at), factor)), out);
  };
  int64_t i = 0;
  for (; i + kFloatLanes <= elements; i += kFloatLanes) round(from + i, to + i * bytes_of(kType));
  if (i >= elements) return;
  float tail[kFloatLanes] = {};
  std::byte rounded[kFloatLanes * 4];
  std::memcpy(tail, from + i, static_cast<size_t>(elements - i) * 4);
  round(tail, rounded);
  std::memcpy(to + i * bytes_of(kType), rounded, static_cast<size_t>((elements - i) * bytes_of(kType)));
}

// The 32 sums of a tile's squares, in as many vectors as they take: independent of each other, so that the additions
// of a row overlap.
class NormSums {
 public:
  HWY_INLINE NormSums() {
    for (auto& sum : sums_) sum = hn::Zero(Doubles());
  }
  // The k-th vector of a row of 32 closed elements. A product of two fp32 is exact in fp64, so a fused multiply-add has
  // the bits of multiply, then add.
  HWY_INLINE void add(int64_t k, hn::Vec<Floats> values) {
    const Doubles dd;
#if HWY_TARGET == HWY_SCALAR  // one lane of either type
    const auto g = hn::PromoteTo(dd, values);
    sums_[k] = hn::MulAdd(g, g, sums_[k]);
#else
    const hn::Half<Floats> dh;
    const auto low = hn::PromoteTo(dd, hn::LowerHalf(dh, values));
    const auto high = hn::PromoteTo(dd, hn::UpperHalf(dh, values));
    sums_[2 * k] = hn::MulAdd(low, low, sums_[2 * k]);
    sums_[2 * k + 1] = hn::MulAdd(high, high, sums_[2 * k + 1]);
#endif
  }
  template <DType kType>
  HWY_INLINE void add_row(const std::byte* row) {
    for (int64_t k = 0; k < kRowVectors; ++k) {
      add(k, hn::BitCast(Floats(), load_float_bits<kType>(Patterns(), row + k * kFloatLanes * bytes_of(kType))));
    }
  }
  template <DType kType>
  HWY_INLINE void add_part_of_row(const std::byte* row, int64_t elements) {  // zeros change no sum
    std::byte whole[kNormLanes * 4] = {};
    std::memcpy(whole, row, static_cast<size_t>(elements * bytes_of(kType)));
    add_row<kType>(whole);
  }
  double combined() const {
    const Doubles dd;
    double lanes[kNormLanes];
    for (int64_t k = 0; k < kNormLanes / kDoubleLanes; ++k) hn::StoreU(sums_[k], dd, lanes + k * kDoubleLanes);
    for (int64_t step = kNormLanes / 2; step >= 1; step /= 2) {
      for (int64_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
    }
    return lanes[0];
  }

 private:
  hn::Vec<Doubles> sums_[kNormLanes / kDoubleLanes];
};

// Rounds one vector and writes it; returns the rounded values.
template <DType kType>
HWY_INLINE hn::Vec<Floats> store_rounded(hn::Vec<Floats> values, std::byte* to) {
  const Patterns du;
  const auto bits = hn::BitCast(du, values);
  if constexpr (kType == DType::kFp32) {
    store_float_bits<kType>(du, bits, to);
    return values;
  } else {
    const auto half = kType == DType::kBf16 ? bf16_of_float_bits(du, bits) : fp16_of_float_bits(du, bits);
    store_halves(du, half, to);
    return hn::BitCast(Floats(), kType == DType::kBf16 ? float_bits_of_bf16(half) : float_bits_of_fp16(du, half));
  }
}

// Rounds a row, writes it and sums its squares. The values summed are never read back, which a load across a vector
// just stored would wait for.
template <DType kType>
HWY_INLINE void close_row(const float* from, hn::Vec<Floats> factor, std::byte* to, NormSums& sums) {
  for (int64_t k = 0; k < kRowVectors; ++k) {
    const auto values = hn::Mul(hn::LoadU(Floats(), from + k * kFloatLanes), factor);
    sums.add(k, store_rounded<kType>(values, to + k * kFloatLanes * bytes_of(kType)));
  }
}

#if HWY_TARGET != HWY_SCALAR
// The same with fewer instructions, which bound it: one look for NaNs a row, and two vectors packed into one.
template <>
HWY_INLINE void close_row<DType::kBf16>(const float* from, hn::Vec<Floats> factor, std::byte* to, NormSums& sums) {
  const Floats df;
  const Patterns du;
  const hn::Repartition<uint16_t, Patterns> dh;
  hn::Vec<Floats> values[kRowVectors];
  auto all = hn::Zero(df);
  for (int64_t k = 0; k < kRowVectors; ++k) {
    values[k] = hn::Mul(hn::LoadU(df, from + k * kFloatLanes), factor);
    all = hn::Add(all, values[k]);
  }
  if (HWY_UNLIKELY(!hn::AllFalse(df, hn::IsNaN(all)))) {  // or infinities that cancel out, which need no care
    for (int64_t k = 0; k < kRowVectors; ++k)
      sums.add(k, store_rounded<DType::kBf16>(values[k], to + k * kFloatLanes * 2));
    return;
  }
  const auto rounded = [&](int64_t k) HWY_ATTR {  // in the upper halves
    const auto bits = hn::BitCast(du, values[k]);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  };
  const auto upper = hn::Set(du, 0xffff0000u);
  for (int64_t k = 0; k < kRowVectors; k += 2) {
    const auto low = rounded(k), high = rounded(k + 1);
    hn::StoreU(hn::ConcatOdd(dh, hn::BitCast(dh, high), hn::BitCast(dh, low)), dh,
               reinterpret_cast<uint16_t*>(to + k * kFloatLanes * 2));
    sums.add(k, hn::BitCast(df, hn::And(low, upper)));
    sums.add(k + 1, hn::BitCast(df, hn::And(high, upper)));
  }
}
#endif

// Rounding and summing in one sweep, so that memory and arithmetic are busy at once. A row is read before it is
// written, in ascending order: `to` may be `from` or lie before it.
template <DType kType>
double close_tile(const float* from, float scale, std::byte* to, int64_t elements) {
  const auto factor = hn::Set(Floats(), scale);
  NormSums sums;
  int64_t i = 0;
  for (; i + kNormLanes <= elements; i += kNormLanes)
    close_row<kType>(from + i, factor, to + i * bytes_of(kType), sums);
  if (i < elements) {
    round_scaled<kType>(from + i, scale, to + i * bytes_of(kType), elements - i);
    sums.add_part_of_row<kType>(to + i * bytes_of(kType), elements - i);
  }
  return sums.combined();
}

KernelTable kernels_of(DType type) {
  switch (type) {
    case DType::kBf16:
      return {add<DType::kBf16>, round_scaled<DType::kBf16>, close_tile<DType::kBf16>};
    case DType::kFp16:
      return {add<DType::kFp16>, round_scaled<DType::kFp16>, close_tile<DType::kFp16>};
    case DType::kFp32:
      break;
  }
  return {add<DType::kFp32>, round_scaled<DType::kFp32>, close_tile<DType::kFp32>};
}

}  // namespace HWY_NAMESPACE
}  // namespace sluice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice {

HWY_EXPORT(kernels_of);

namespace {

// Hands a parameter's closed elements to its pieces, in order.
class PieceWriter {
 public:
  PieceWriter(std::span<const ClosedPiece> pieces, DType dtype) : pieces_(pieces), element_bytes_(bytes_of(dtype)) {}

  // Where the next elements go, if that is one place; null where the output is cut within them.
  std::byte* place_of(int64_t elements) {
    leave_full_pieces();
    const ClosedPiece& piece = pieces_.front();
    if (piece.elements - done_ < elements) return nullptr;
    std::byte* to = piece.to + done_ * element_bytes_;
    done_ += elements;
    return to;
  }

  void write(const std::byte* from, int64_t elements) {
    while (elements > 0) {
      leave_full_pieces();
      const ClosedPiece& piece = pieces_.front();
      const int64_t now = std::min(elements, piece.elements - done_);
      std::memcpy(piece.to + done_ * element_bytes_, from, static_cast<size_t>(now * element_bytes_));
      from += now * element_bytes_;
      done_ += now;
      elements -= now;
    }
  }

 private:
  void leave_full_pieces() {
    while (done_ == pieces_.front().elements) {
      pieces_ = pieces_.subspan(1);
      done_ = 0;
    }
  }

  std::span<const ClosedPiece> pieces_;
  int64_t element_bytes_;
  int64_t done_ = 0;  // elements of the front piece
};

}  // namespace

void add_gradient(float* open, const GradientView& gradient, Contribution which) {
  HWY_DYNAMIC_DISPATCH(kernels_of)(gradient.dtype).add(open, gradient.values, gradient.elements, which);
}

double close_gradient(const Closing& closing) {
  const KernelTable kernels = HWY_DYNAMIC_DISPATCH(kernels_of)(closing.dtype);
  int64_t elements = 0;
  for (const ClosedPiece& piece : closing.pieces) elements += piece.elements;
  PieceWriter writer(closing.pieces, closing.dtype);
  alignas(64) std::byte tile[kTile * 4];
  double sum = 0;
  for (int64_t i = 0; i < elements; i += kTile) {
    const int64_t now = std::min(kTile, elements - i);
    std::byte* const place = writer.place_of(now);
    sum += kernels.close_tile(closing.open + i, closing.scale, place ? place : tile, now);
    if (!place) writer.write(tile, now);
  }
  return sum;
}

void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) {
  if (dtype == DType::kFp32) {
    std::memmove(to, from, static_cast<size_t>(elements) * 4);
  } else {
    HWY_DYNAMIC_DISPATCH(kernels_of)(dtype).round_scaled(from, 1.0f, to, elements);
  }
}

}  // namespace sluice
#endif
