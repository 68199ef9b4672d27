// An update's planes as vectors: how masters and moments are read and written, in place or out of place. Included once per
// SIMD target, inside `namespace HWY_NAMESPACE` of a .cpp that has included Highway, named it `hn`, and has the vectors'
// types (Floats, Patterns, F, U, kLanes) and core/half_lanes.inl.

// What an update does with what it has read.
struct InPlace {};
struct OutOfPlace {
  const AdamPlanes& to;  // at whole vectors; never read
};  // ... or AdamSums: in place, and sums
HWY_INLINE const AdamPlanes& written(const AdamPlanes& /*planes*/, const OutOfPlace& way) { return way.to; }
template <class Way>
HWY_INLINE const AdamPlanes& written(const AdamPlanes& planes, const Way& /*way*/) {
  return planes;
}
template <class Way>
constexpr bool kStreams = std::is_same_v<Way, OutOfPlace>;

// Where an update reads and writes.
template <class Way>
struct Places {
  const AdamPlanes& from;
  const AdamPlanes& to;
  // A whole vector. Out of place past the caches: memory is not read before it is written.
  template <class D>
  static HWY_INLINE void store(hn::Vec<D> lanes, D d, hn::TFromD<D>* at) {
    if constexpr (kStreams<Way>) {
      hn::Stream(lanes, d, at);
    } else {
      hn::StoreU(lanes, d, at);
    }
  }
};

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

template <Precision kPrecision, class Way>
HWY_INLINE void store_master(const Places<Way>& places, int64_t i, F master) {
  const AdamPlanes& planes = places.to;
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
    places.store(master, df, planes.master + i);
    store_float_bits<DType::kFp16>(du, bits, planes.weights + i * 2);
  } else {
    places.store(bits, du, reinterpret_cast<uint32_t*>(planes.weights) + i);
  }
}

// Two vectors that follow each other. Halves with one look for NaNs (or for infinities that cancel out, which need no
// care) and each plane in one store: instructions bound the pass in cache.
template <Precision kPrecision, class Way>
HWY_INLINE void store_masters(const Places<Way>& places, int64_t i, F low, F high) {
#if HWY_TARGET != HWY_SCALAR  // which has no pairs of lanes
  if constexpr (kPrecision == Precision::kBf16) {
    const Floats df;
    const Patterns du;
    const hn::Repartition<uint16_t, Patterns> dh;
    if (HWY_LIKELY(hn::AllFalse(df, hn::IsNaN(hn::Add(low, high))))) {
      const U low_bits = hn::BitCast(du, low), high_bits = hn::BitCast(du, high), half = hn::Set(du, 0x8000u);
      const U low_rounded = hn::Add(low_bits, half), high_rounded = hn::Add(high_bits, half);
      places.store(hn::ConcatOdd(dh, hn::BitCast(dh, high_rounded), hn::BitCast(dh, low_rounded)), dh,
                   reinterpret_cast<uint16_t*>(places.to.weights) + i);
      places.store(hn::ConcatEven(dh, hn::BitCast(dh, high_bits), hn::BitCast(dh, low_bits)), dh,
                   reinterpret_cast<uint16_t*>(places.to.residual) + i);
      return;
    }
  }
#endif
  store_master<kPrecision>(places, i, low);
  store_master<kPrecision>(places, i + kLanes, high);
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
