// core/half.h on vectors. Included once per SIMD target, inside `namespace HWY_NAMESPACE` of a .cpp that has included
// Highway and named it `hn`. Halves are the low 16 bits of u32 lanes, the bits above them zero.

template <class V>
HWY_INLINE V float_bits_of_bf16(V half) {
  return hn::ShiftLeft<16>(half);
}

// True where the magnitude (sign bit clear) is above, or below, `bound`.
template <class DU, class V>
HWY_INLINE auto magnitude_above(DU du, V magnitude, uint32_t bound) {
  const hn::RebindToSigned<DU> di;
  return hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(bound))));
}
template <class DU, class V>
HWY_INLINE auto magnitude_below(DU du, V magnitude, uint32_t bound) {
  const hn::RebindToSigned<DU> di;
  return hn::RebindMask(du, hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<int32_t>(bound))));
}

template <class DU, class V>
HWY_INLINE V bf16_of_float_bits(DU du, V bits) {
  const V high = hn::ShiftRight<16>(bits);
  const V even = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), hn::And(high, hn::Set(du, 1u)));
  const auto nan = magnitude_above(du, hn::And(bits, hn::Set(du, 0x7fffffffu)), 0x7f800000u);
  return hn::IfThenElse(nan, hn::Or(high, hn::Set(du, 0x40u)), hn::ShiftRight<16>(even));
}

template <class DU, class V>
HWY_INLINE V float_bits_of_fp16(DU du, V half) {
  const hn::RebindToFloat<DU> df;
  const V sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const V shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
  const V normal = hn::Add(shifted, hn::Set(du, 112u << 23));
  const V special = hn::Add(normal, hn::Set(du, 112u << 23));
  const V raised = hn::Add(normal, hn::Set(du, 1u << 23));
  const V subnormal = hn::BitCast(du, hn::Sub(hn::BitCast(df, raised), hn::Set(df, 0x1p-14f)));
  V bits = hn::IfThenElse(magnitude_above(du, shifted, 0x0f7fffffu), special, normal);
  bits = hn::IfThenElse(magnitude_below(du, shifted, 0x00800000u), subnormal, bits);
  return hn::Or(bits, sign);
}

template <class DU, class V>
HWY_INLINE V fp16_of_float_bits(DU du, V bits) {
  const hn::RebindToFloat<DU> df;
  const V sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const V magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const V shifted = hn::ShiftRight<13>(magnitude);
  const V nan = hn::Or(hn::And(shifted, hn::Set(du, 0x3ffu)), hn::Set(du, 0x7e00u));
  const V odd = hn::And(shifted, hn::Set(du, 1u));
  const V normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, (112u << 23) - 0xfffu)), odd));
  const V adder = hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f)));
  const V subnormal = hn::Sub(adder, hn::Set(du, 0x3f000000u));
  V half = hn::IfThenElse(magnitude_above(du, magnitude, 0x477fffffu), hn::Set(du, 0x7c00u), normal);
  half = hn::IfThenElse(magnitude_above(du, magnitude, 0x7f800000u), nan, half);
  half = hn::IfThenElse(magnitude_below(du, magnitude, 0x38800000u), subnormal, half);
  return hn::Or(half, sign);
}

// Values of dtype kType at `from`, as fp32 patterns. Reads Lanes(du) elements.
template <DType kType, class DU>
HWY_INLINE auto load_float_bits(DU du, const std::byte* from) {
  if constexpr (kType == DType::kFp32) {
    return hn::LoadU(du, reinterpret_cast<const uint32_t*>(from));
  } else {
    const hn::Rebind<uint16_t, DU> dh;
    const auto half = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from)));
    if constexpr (kType == DType::kBf16) return float_bits_of_bf16(half);
    if constexpr (kType == DType::kFp16) return float_bits_of_fp16(du, half);
  }
}

// Writes the low 16 bits of each lane. In store_halves the bits above must be zero.
template <class DU, class V>
HWY_INLINE void store_halves([[maybe_unused]] DU du, V halves, void* to) {
  const hn::Rebind<uint16_t, DU> dh;
#if HWY_TARGET <= HWY_AVX3  // one instruction; Highway's DemoteTo saturates and permutes
  if constexpr (sizeof(V) == 64) {
    _mm256_storeu_si256(static_cast<__m256i_u*>(to), _mm512_cvtepi32_epi16(halves.raw));
    return;
  }
#endif
  const hn::RebindToSigned<DU> di;
  hn::StoreU(hn::DemoteTo(dh, hn::BitCast(di, halves)), dh, static_cast<uint16_t*>(to));
}
template <class DU, class V>
HWY_INLINE void store_low_halves(DU du, V lanes, void* to) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64) return store_halves(du, lanes, to);
#endif
  store_halves(du, hn::And(lanes, hn::Set(du, 0xffffu)), to);
}

// Rounds fp32 patterns to dtype kType and writes Lanes(du) elements.
template <DType kType, class DU, class V>
HWY_INLINE void store_float_bits(DU du, V bits, std::byte* to) {
  if constexpr (kType == DType::kFp32) hn::StoreU(bits, du, reinterpret_cast<uint32_t*>(to));
  if constexpr (kType == DType::kBf16) store_halves(du, bf16_of_float_bits(du, bits), to);
  if constexpr (kType == DType::kFp16) store_halves(du, fp16_of_float_bits(du, bits), to);
}
