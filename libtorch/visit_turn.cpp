#include "libtorch/visit_turn.h"

#include "core/errors.h"
#include "offload/gradient_kernels.h"

namespace sluice {

void UseTurn::contribute(int weight, const std::byte* gradient, DType dtype) {
  use_.contribute(weight, gradient, dtype);
}

void UseTurn::contribute_part(int weight, int64_t first, const std::byte* gradient, int64_t elements, DType dtype) {
  const std::span<float> open = use_.open_gradient(weight);
  SLUICE_CHECK(first >= 0 && first + elements <= static_cast<int64_t>(open.size()), "a part outside its gradient");
  add_gradient(open.data() + first, gradient, dtype, elements, Contribution::kLater);
}

}  // namespace sluice
