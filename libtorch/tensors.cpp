#include "libtorch/tensors.h"

#include <ATen/ops/from_blob.h>

#include "core/errors.h"
#include "libtorch/compute_scope.h"

namespace sluice {
namespace {

c10::Device compute_device() {
  return current_compute_stream() == nullptr ? c10::Device(c10::DeviceType::CPU)
                                             : c10::Device(c10::DeviceType::CUDA, 0);
}

}  // namespace

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
  const c10::Device place = compute_device();
  return at::for_blob(const_cast<void*>(address), shape)
      .options(at::TensorOptions().dtype(scalar_type(dtype)).device(place))
      .target_device(place)
      .make_tensor();
}

at::Tensor tensor_of(const WeightView& weight) {
  return tensor_at(weight.address, weight.dtype, weight.parameter->shape);
}

at::Tensor tensor_of(const TensorView& view, at::IntArrayRef shape) {
  SLUICE_CHECK(c10::multiply_integers(shape) <= view.elements, "a shape larger than its boundary tensor");
  return tensor_at(view.address, view.dtype, shape);
}

namespace {

// To a GPU by way of pinned memory of LibTorch's, which it keeps until the stream has read it: nobody waits.
at::Tensor from_host(const void* values, c10::ScalarType type, size_t count) {
  const at::Tensor here = at::from_blob(const_cast<void*>(values), {static_cast<int64_t>(count)}, type);
  const c10::Device place = compute_device();
  constexpr bool kNonBlocking = true;
  return place.is_cpu() ? here : here.pin_memory().to(place, kNonBlocking);
}

}  // namespace

at::Tensor tensor_from_host(std::span<const int64_t> values) {
  return from_host(values.data(), c10::ScalarType::Long, values.size());
}
at::Tensor tensor_from_host(std::span<const float> values) {
  return from_host(values.data(), c10::ScalarType::Float, values.size());
}

}  // namespace sluice
