// CRC32C of a kernel's planes, folded while it has their lines at hand. Included once per SIMD target, inside
// `namespace HWY_NAMESPACE` of a .cpp that has included Highway and named it `hn`.
//
// Bytes are a polynomial over GF(2), the first bit its highest power, and their CRC is a remainder modulo P. So one
// vector can stand for all that came before, with the same remainder: sum = sum * x^n + next vector, n its bits. The
// product of a 128-bit lane and x^n is two carry-less products of its halves with x^(n + 64) mod P and x^n mod P.
// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).

// Only for targets that multiply all lanes of a vector at once: one lane at a time is slower than core/checksum.h
// beside the update.
#undef SLUICE_TARGET_FOLDS
#define SLUICE_TARGET_FOLDS (HWY_TARGET <= HWY_AVX3_DL)
#if SLUICE_TARGET_FOLDS

using Words = hn::ScalableTag<uint64_t>;
using Fold = hn::Vec<Words>;
constexpr int64_t kFoldBytes = static_cast<int64_t>(hn::MaxLanes(Words()) * sizeof(uint64_t));

// Polynomials below have their highest power in the lowest bit, as CRC32C's bytes have.
constexpr uint32_t kCastagnoli = 0x82f63b78u;  // P without x^32
constexpr uint64_t power_mod_p(int64_t power) {
  uint32_t value = 0x80000000u;
  for (int64_t i = 0; i < power; ++i) value = (value >> 1) ^ (value & 1 ? kCastagnoli : 0);
  return uint64_t{value} << 32;
}

// The product of two mirrored words stands one power too low in its lane, hence - 1.
HWY_INLINE Fold fold_powers() {
  const Words dw;
  constexpr int64_t kBits = 8 * kFoldBytes;
  return hn::OddEven(hn::Set(dw, power_mod_p(kBits - 1)), hn::Set(dw, power_mod_p(kBits + 63)));
}

// The bytes (zeros but for the last four) whose CRC is `sum`: divided by x^32.
HWY_INLINE Fold fold_of(uint32_t sum) {
  uint32_t state = ~sum;
  for (int bit = 0; bit < 32; ++bit) state = state >> 31 ? (state ^ kCastagnoli) << 1 | 1 : state << 1;
  HWY_ALIGN uint64_t words[kFoldBytes / 8] = {};
  words[kFoldBytes / 8 - 1] = uint64_t{state} << 32;
  return hn::Load(Words(), words);
}
HWY_INLINE uint32_t sum_of(Fold fold) {
  HWY_ALIGN uint64_t words[kFoldBytes / 8];
  hn::Store(fold, Words(), words);
  return crc32c(~uint32_t{0}, std::as_bytes(std::span(words)));
}

// A block of kElements elements of kElementBytes each.
template <int64_t kElements, int64_t kElementBytes>
HWY_INLINE void fold_block(Fold powers, const void* plane, int64_t i, Fold& fold) {
  const auto* from = static_cast<const std::byte*>(plane) + i * kElementBytes;
  static_assert(kElements * kElementBytes % kFoldBytes == 0);
  for (int64_t at = 0; at < kElements * kElementBytes; at += kFoldBytes) {
    const Fold next = hn::LoadU(Words(), reinterpret_cast<const uint64_t*>(from + at));
    fold = hn::Xor3(hn::CLMulLower(fold, powers), hn::CLMulUpper(fold, powers), next);
  }
}

// The running sums of all planes of an update. `before` and `after` take the block of kBlock elements at element i, as
// it comes and as it went.
template <Precision kPrecision, DType kGradient, DType kMoments, AdamKind kKind, int64_t kBlock>
class PlaneFolds {
 public:
  HWY_INLINE PlaneFolds(const AdamPlanes& planes, const AdamSums& sums)
      : planes_(planes), sums_(sums), powers_(fold_powers()) {
    weights_in_ = started(sums.weights_in, 0);
    gradient_in_ = started(sums.gradient_in, 0);
    weights_out_ = started(sums.weights_out, 0);
    state_in_ = started(sums.state_in);
    state_out_ = started(sums.state_out);
  }

  HWY_INLINE void before(int64_t i) {
    if (sums_.weights_in) fold_weights(i, weights_in_);
    if (sums_.state_in) fold_state(i, state_in_);
    if (sums_.gradient_in) fold_block<kBlock, bytes_of(kGradient)>(powers_, planes_.gradient, i, gradient_in_);
  }
  HWY_INLINE void after(int64_t i) {
    if (sums_.weights_out) fold_weights(i, weights_out_);
    if (sums_.state_out) fold_state(i, state_out_);
  }

  HWY_INLINE void finish() {
    finish(weights_in_, sums_.weights_in, 0);
    finish(gradient_in_, sums_.gradient_in, 0);
    finish(weights_out_, sums_.weights_out, 0);
    finish(state_in_, sums_.state_in);
    finish(state_out_, sums_.state_out);
  }

 private:
  static constexpr bool kTwoMoments = adam::has_two_moments(kKind);
  static constexpr int kMaster = kPrecision == Precision::kFp32 ? 0 : 1;  // planes before the moments
  struct State {
    Fold master, moment1, moment2;
  };

  static HWY_INLINE Fold started(const uint32_t* sums, int plane) {
    return sums ? fold_of(sums[plane]) : hn::Zero(Words());
  }
  static HWY_INLINE State started(const uint32_t* sums) {
    return {started(sums, 0), started(sums, kMaster), started(kTwoMoments ? sums : nullptr, kMaster + 1)};
  }
  static HWY_INLINE void finish(Fold fold, uint32_t* sums, int plane) {
    if (sums) sums[plane] = sum_of(fold);
  }
  static HWY_INLINE void finish(const State& state, uint32_t* sums) {
    if constexpr (kMaster == 1) finish(state.master, sums, 0);
    finish(state.moment1, sums, kMaster);
    if constexpr (kTwoMoments) finish(state.moment2, sums, kMaster + 1);
  }

  HWY_INLINE void fold_weights(int64_t i, Fold& fold) {
    fold_block<kBlock, bytes_of(weights_dtype(kPrecision))>(powers_, planes_.weights, i, fold);
  }
  HWY_INLINE void fold_state(int64_t i, State& state) {
    if constexpr (kPrecision == Precision::kBf16) fold_block<kBlock, 2>(powers_, planes_.residual, i, state.master);
    if constexpr (kPrecision == Precision::kFp16) fold_block<kBlock, 4>(powers_, planes_.master, i, state.master);
    if constexpr (kMoments == DType::kFp32) {
      fold_block<kBlock, 4>(powers_, planes_.moment1, i, state.moment1);
      if constexpr (kTwoMoments) fold_block<kBlock, 4>(powers_, planes_.moment2, i, state.moment2);
    } else {
      fold_block<kBlock, 2>(powers_, planes_.half_moment1, i, state.moment1);
      if constexpr (kTwoMoments) fold_block<kBlock, 2>(powers_, planes_.half_moment2, i, state.moment2);
    }
  }

  const AdamPlanes planes_;
  const AdamSums sums_;
  const Fold powers_;
  Fold weights_in_, gradient_in_, weights_out_;
  State state_in_, state_out_;
};
#endif
