// Planes of a range of elements for the tests of the update: owned, guarded on both ends, compared by bits.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/half.h"
#include "core/split_master.h"
#include "cpu_adam/adam.h"

namespace sluice {

// `elements` values of T, starting `offset` elements into a buffer whose every other byte is a sentinel.
template <class T>
class GuardedPlane {
 public:
  GuardedPlane(int64_t elements, int64_t offset)
      : elements_(elements),
        offset_(offset),
        bytes_(static_cast<size_t>(elements + 2 * kGuard) * sizeof(T), kSentinel) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data()) + begin(); }
  std::byte* raw() { return bytes_.data() + static_cast<size_t>(begin()) * sizeof(T); }
  T get(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(begin() + i) * sizeof(T), sizeof(T));
    return value;
  }
  void set(int64_t i, T value) { std::memcpy(raw() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T)); }
  bool operator==(const GuardedPlane&) const = default;  // by bytes, guards included
  bool guards_intact() const {
    const size_t first = static_cast<size_t>(begin()) * sizeof(T);
    const size_t last = static_cast<size_t>(begin() + elements_) * sizeof(T);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < first || i >= last) && bytes_[i] != kSentinel) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 40;  // more than two of the widest vectors
  static constexpr std::byte kSentinel{0xa5};
  int64_t begin() const { return kGuard - 8 + offset_; }
  int64_t elements_, offset_;
  std::vector<std::byte> bytes_;
};

inline bool same_float(uint32_t a, uint32_t b) {
  const auto is_nan = [](uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; };
  return a == b || (is_nan(a) && is_nan(b));
}

// How planes lie: all of them `offset` elements from an aligned address, or each `skew` more than the one before.
struct Misalignment {
  int64_t offset = 0, skew = 0;
  int64_t of(int64_t plane) const { return (offset + plane * skew) % 32; }
};

// The whole state of a range, in the layout of its format.
struct TestState {
  TestState(AdamFormat adam_format, int64_t n, Misalignment at = {})
      : format(adam_format),
        elements(n),
        halves(n, at.of(0)),
        gradient_halves(n, at.of(1)),
        residual(n, at.of(2)),
        floats(n, at.of(3)),
        moment1(n, at.of(4)),
        moment2(n, at.of(5)),
        half_moment1(n, at.of(6)),
        half_moment2(n, at.of(7)),
        gradient_floats(n, at.of(8)) {}

  AdamPlanes planes() {
    const bool fp32_gradient = format.gradient == DType::kFp32;
    return {.weights = format.precision == Precision::kFp32 ? floats.raw() : halves.raw(),
            .residual = format.precision == Precision::kBf16 ? residual.data() : nullptr,
            .master = format.precision == Precision::kFp16 ? floats.data() : nullptr,
            .moment1 = half_moments() ? nullptr : moment1.data(),
            .moment2 = half_moments() ? nullptr : moment2.data(),
            .half_moment1 = half_moments() ? half_moment1.data() : nullptr,
            .half_moment2 = half_moments() ? half_moment2.data() : nullptr,
            .gradient = fp32_gradient ? gradient_floats.raw() : gradient_halves.raw(),
            .element = first_element};
  }

  struct Values {
    float p, m, v, g;
  };
  void set(int64_t i, const Values& values) {
    const auto [p, m, v, g] = values;
    if (format.precision == Precision::kBf16) {
      const SplitMaster split = split_master(p);
      halves.set(i, split.weight);
      residual.set(i, split.residual);
    } else {
      floats.set(i, p);
      halves.set(i, fp16_of_float(p));
    }
    moment1.set(i, m);
    moment2.set(i, v);
    half_moment1.set(i, bf16_of_float(m));
    half_moment2.set(i, bf16_of_float(v));
    gradient_floats.set(i, g);
    gradient_halves.set(i, format.precision == Precision::kBf16 ? bf16_of_float(g) : fp16_of_float(g));
  }
  float master(int64_t i) const {
    return format.precision == Precision::kBf16 ? join_master({halves.get(i), residual.get(i)}) : floats.get(i);
  }
  bool half_moments() const { return format.moments == DType::kBf16; }
  float m(int64_t i) const { return half_moments() ? float_of_bf16(half_moment1.get(i)) : moment1.get(i); }
  float v(int64_t i) const { return half_moments() ? float_of_bf16(half_moment2.get(i)) : moment2.get(i); }
  float weight(int64_t i) const {
    if (format.precision == Precision::kFp32) return floats.get(i);
    return format.precision == Precision::kBf16 ? float_of_bf16(halves.get(i)) : float_of_fp16(halves.get(i));
  }
  float gradient(int64_t i) const {
    if (format.gradient == DType::kFp32) return gradient_floats.get(i);
    return format.gradient == DType::kBf16 ? float_of_bf16(gradient_halves.get(i))
                                           : float_of_fp16(gradient_halves.get(i));
  }
  bool guards_intact() const {
    return halves.guards_intact() && gradient_halves.guards_intact() && residual.guards_intact() &&
           floats.guards_intact() && moment1.guards_intact() && moment2.guards_intact() &&
           half_moment1.guards_intact() && half_moment2.guards_intact() && gradient_floats.guards_intact();
  }

  bool same_bytes(const TestState& other) const {
    return halves == other.halves && gradient_halves == other.gradient_halves && residual == other.residual &&
           floats == other.floats && moment1 == other.moment1 && moment2 == other.moment2 &&
           half_moment1 == other.half_moment1 && half_moment2 == other.half_moment2 &&
           gradient_floats == other.gradient_floats;
  }

  AdamFormat format;
  int64_t elements;
  int64_t first_element = (int64_t{1} << 32) - 100;  // the counters of the elements wrap in the range
  GuardedPlane<uint16_t> halves, gradient_halves;
  GuardedPlane<int16_t> residual;
  GuardedPlane<float> floats, moment1, moment2;
  GuardedPlane<uint16_t> half_moment1, half_moment2;
  GuardedPlane<float> gradient_floats;
};

// The first element whose bits differ (NaN as a class), or -1.
inline int64_t first_difference(const TestState& a, const TestState& b) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  for (int64_t i = 0; i < a.elements; ++i) {
    bool same = same_float(bits(a.master(i)), bits(b.master(i))) && same_float(bits(a.weight(i)), bits(b.weight(i))) &&
                same_float(bits(a.m(i)), bits(b.m(i))) && same_float(bits(a.v(i)), bits(b.v(i)));
    const float p = a.master(i);
    if (p == p) same = same && a.halves.get(i) == b.halves.get(i) && a.residual.get(i) == b.residual.get(i);
    if (!same) return i;
  }
  return -1;
}

inline const std::vector<AdamFormat>& all_formats() {
  static const std::vector<AdamFormat> formats = {{Precision::kBf16, DType::kBf16},
                                                  {Precision::kBf16, DType::kFp32},
                                                  {Precision::kFp16, DType::kFp16},
                                                  {Precision::kFp16, DType::kFp32},
                                                  {Precision::kFp32, DType::kFp32}};
  return formats;
}
// With moments in bf16 too.
inline const std::vector<AdamFormat>& all_formats_and_moments() {
  static const std::vector<AdamFormat> formats = [] {
    std::vector<AdamFormat> both = all_formats();
    for (AdamFormat format : all_formats()) {
      format.moments = DType::kBf16;
      both.push_back(format);
    }
    return both;
  }();
  return formats;
}

inline const std::vector<AdamKind>& all_kinds() {
  static const std::vector<AdamKind> kinds = {AdamKind::kAdamW, AdamKind::kAdam, AdamKind::kAdagrad, AdamKind::kLion,
                                              AdamKind::kSgd};
  return kinds;
}

// Infinities, NaNs, zeros, subnormals, the largest and smallest of fp32, bf16 and fp16, halfway points of rounding, and
// what overflows or underflows when it is squared.
constexpr uint32_t kEdges[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7fffffff,
                               0xffff8000, 0x7f800001, 0x00000001, 0x80000001, 0x007fffff, 0x00800000,
                               0x80800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0x3f808000, 0x3f807fff,
                               0x3f818000, 0x33800000, 0x38800000, 0x387fe000, 0x477fe000, 0x477ff000,
                               0x7f7f8000, 0x7f7f7fff, 0x2edbe6ff, 0x1e3ce508, 0x5f7fffff};

enum class Values { kOrdinary, kAnyPattern };

// kOrdinary: what training sees. kAnyPattern: every second value is an edge case (Inf, NaN, subnormals, largest, -0)
// or a random bit pattern.
inline void fill(TestState& state, Values values, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto pick = [&](float ordinary) {
    if (values == Values::kOrdinary || random() % 2 == 0) return ordinary;
    if (random() % 2 == 0) return std::bit_cast<float>(static_cast<uint32_t>(random()));
    return std::bit_cast<float>(kEdges[random() % std::size(kEdges)]);
  };
  for (int64_t i = 0; i < state.elements; ++i) {
    const float v = normal(random);
    state.set(i, {pick(normal(random) * 0.02f), pick(normal(random) * 1e-3f), pick(v * v * 1e-6f),
                  pick(normal(random) * 1e-2f)});
  }
}

}  // namespace sluice
