#include "core/adam_element.h"
#include "cpu_adam/adam.h"

namespace sluice {
namespace {

template <Precision kPrecision, DType kGradient, DType kMoments>
Finite update(const AdamStep& step, const AdamPlanes& planes, int64_t elements) {
  bool finite = true;
  for (int64_t i = 0; i < elements; ++i) {
    adam::StoredElement<kPrecision, kGradient, kMoments> before;
    before.load(step, planes, i);
    const adam::Element after = adam::updated(step, before.element());
    adam::store_element<kPrecision, kMoments>(step, planes, i, after);
    finite = adam::is_finite<kPrecision>(after) && finite;
  }
  return finite ? Finite::kYes : Finite::kNo;
}

template <Precision kPrecision, DType kGradient>
AdamKernel update_of(DType moments) {
  return moments == DType::kBf16 ? update<kPrecision, kGradient, DType::kBf16>
                                 : update<kPrecision, kGradient, DType::kFp32>;
}

}  // namespace

AdamKernel adam_scalar(AdamFormat format) {
  check_format(format);
  const bool fp32_gradient = format.gradient == DType::kFp32;
  switch (format.precision) {
    case Precision::kBf16:
      return fp32_gradient ? update_of<Precision::kBf16, DType::kFp32>(format.moments)
                           : update_of<Precision::kBf16, DType::kBf16>(format.moments);
    case Precision::kFp16:
      return fp32_gradient ? update_of<Precision::kFp16, DType::kFp32>(format.moments)
                           : update_of<Precision::kFp16, DType::kFp16>(format.moments);
    case Precision::kFp32:
      break;
  }
  return update_of<Precision::kFp32, DType::kFp32>(format.moments);
}

}  // namespace sluice
