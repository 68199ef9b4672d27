// Compiled once per SIMD target by Highway's foreach_target; the best one is chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offload/gradient_kernels.cpp"
#include "offload/gradient_kernels.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#ifndef SLUICE_OFFLOAD_GRADIENT_KERNEL_TABLE
#define SLUICE_OFFLOAD_GRADIENT_KERNEL_TABLE
namespace sluice {
namespace {

constexpr int64_t kTile = 4096;  // elements
constexpr int64_t kNormLanes = 32;

// One target's kernels for one dtype.
struct KernelTable {
  void (*add)(float* open, const std::byte* gradient, int64_t elements, Contribution which);
  void (*round_scaled)(const float* from, float scale, std::byte* to, int64_t elements);
  double (*tile_norm)(const std::byte* closed, int64_t elements);
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
using DoublePatterns = hn::Rebind<uint32_t, Doubles>;
constexpr int64_t kFloatLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));
constexpr int64_t kDoubleLanes = static_cast<int64_t>(hn::MaxLanes(Doubles()));

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

// A product of two fp32 is exact in fp64, so a fused multiply-add has the bits of multiply, then add.
template <DType kType>
double tile_norm(const std::byte* closed, int64_t elements) {
  const Doubles dd;
  const DoublePatterns du;
  const hn::Rebind<float, Doubles> df;
  hn::Vec<Doubles> sums[kNormLanes / kDoubleLanes];
  for (auto& sum : sums) sum = hn::Zero(dd);
  const auto add_row = [&](const std::byte* row) HWY_ATTR {
    for (int64_t k = 0; k < kNormLanes / kDoubleLanes; ++k) {
      const auto bits = load_float_bits<kType>(du, row + k * kDoubleLanes * bytes_of(kType));
      const auto g = hn::PromoteTo(dd, hn::BitCast(df, bits));
      sums[k] = hn::MulAdd(g, g, sums[k]);
    }
  };
  int64_t i = 0;
  for (; i + kNormLanes <= elements; i += kNormLanes) add_row(closed + i * bytes_of(kType));
  if (i < elements) {  // zeros change no sum
    std::byte row[kNormLanes * 4] = {};
    std::memcpy(row, closed + i * bytes_of(kType), static_cast<size_t>((elements - i) * bytes_of(kType)));
    add_row(row);
  }
  double lanes[kNormLanes];
  for (int64_t k = 0; k < kNormLanes / kDoubleLanes; ++k) hn::StoreU(sums[k], dd, lanes + k * kDoubleLanes);
  for (int64_t step = kNormLanes / 2; step >= 1; step /= 2) {
    for (int64_t lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
  }
  return lanes[0];
}

KernelTable kernels_of(DType type) {
  switch (type) {
    case DType::kBf16:
      return {add<DType::kBf16>, round_scaled<DType::kBf16>, tile_norm<DType::kBf16>};
    case DType::kFp16:
      return {add<DType::kFp16>, round_scaled<DType::kFp16>, tile_norm<DType::kFp16>};
    case DType::kFp32:
      break;
  }
  return {add<DType::kFp32>, round_scaled<DType::kFp32>, tile_norm<DType::kFp32>};
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

  void write(const std::byte* from, int64_t elements) {
    while (elements > 0) {
      while (done_ == pieces_.front().elements) {
        pieces_ = pieces_.subspan(1);
        done_ = 0;
      }
      const ClosedPiece& piece = pieces_.front();
      const int64_t now = std::min(elements, piece.elements - done_);
      std::memcpy(piece.to + done_ * element_bytes_, from, static_cast<size_t>(now * element_bytes_));
      from += now * element_bytes_;
      done_ += now;
      elements -= now;
    }
  }

 private:
  std::span<const ClosedPiece> pieces_;
  int64_t element_bytes_;
  int64_t done_ = 0;  // elements of the front piece
};

}  // namespace

void add_gradient(float* open, const std::byte* gradient, DType dtype, int64_t elements, Contribution which) {
  HWY_DYNAMIC_DISPATCH(kernels_of)(dtype).add(open, gradient, elements, which);
}

double close_gradient(const float* open, float scale, DType dtype, std::span<const ClosedPiece> pieces) {
  const KernelTable kernels = HWY_DYNAMIC_DISPATCH(kernels_of)(dtype);
  int64_t elements = 0;
  for (const ClosedPiece& piece : pieces) elements += piece.elements;
  PieceWriter writer(pieces, dtype);
  alignas(64) std::byte tile[kTile * 4];
  double sum = 0;
  for (int64_t i = 0; i < elements; i += kTile) {
    const int64_t now = std::min(kTile, elements - i);
    kernels.round_scaled(open + i, scale, tile, now);
    sum += kernels.tile_norm(tile, now);
    writer.write(tile, now);
  }
  return sum;
}

double norm_part(const std::byte* closed, DType dtype, int64_t elements) {
  const KernelTable kernels = HWY_DYNAMIC_DISPATCH(kernels_of)(dtype);
  double sum = 0;
  for (int64_t i = 0; i < elements; i += kTile) {
    sum += kernels.tile_norm(closed + i * bytes_of(dtype), std::min(kTile, elements - i));
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
