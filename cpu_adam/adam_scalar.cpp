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

}  // namespace

AdamKernel adam_scalar(AdamFormat format) {
  return adam::with_format(format, []<Precision kPrecision, DType kGradient, DType kMoments>() -> AdamKernel {
    return update<kPrecision, kGradient, kMoments>;
  });
}

}  // namespace sluice
