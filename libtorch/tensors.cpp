#include "libtorch/tensors.h"

#include <ATen/ops/from_blob.h>

#include "core/errors.h"

namespace sluice {

c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return c10::ScalarType::BFloat16;
    case DType::kFp16:
      return c10::ScalarType::Half;
    case DType::kFp32:
      return c10::ScalarType::Float;
  }
  check_failed("dtype", __FILE__, __LINE__, "an unknown dtype");
}

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::BFloat16:
      return DType::kBf16;
    case c10::ScalarType::Half:
      return DType::kFp16;
    case c10::ScalarType::Float:
      return DType::kFp32;
    default:
      check_failed("dtype", __FILE__, __LINE__, "a tensor of a dtype that has no place in the tiers");
  }
}

at::Tensor tensor_at(const void* address, DType dtype, at::IntArrayRef shape) {
  return at::from_blob(const_cast<void*>(address), shape, at::TensorOptions().dtype(scalar_type(dtype)));
}

at::Tensor tensor_of(const WeightView& weight) {
  return tensor_at(weight.address, weight.dtype, weight.parameter->shape);
}

at::Tensor tensor_of(const TensorView& view, at::IntArrayRef shape) {
  SLUICE_CHECK(c10::multiply_integers(shape) <= view.elements, "a shape larger than its boundary tensor");
  return tensor_at(view.address, view.dtype, shape);
}

}  // namespace sluice
