// Planned memory seen as LibTorch tensors: views, nothing is owned or copied. Where this thread computes
// (libtorch/compute_scope.h) is where they are. Includes LibTorch: for .cpp files of libtorch and models only.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "engine/engine.h"

namespace sluice {

c10::ScalarType scalar_type(DType dtype);
DType dtype_of(const at::Tensor& tensor);

// The tensor of `shape` at `address`; the memory must outlive every use of it.
at::Tensor tensor_at(const void* address, DType dtype, at::IntArrayRef shape);
at::Tensor tensor_of(const WeightView& weight);  // in the parameter's shape
// The first elements of a boundary tensor, in `shape` (no more elements than it has).
at::Tensor tensor_of(const TensorView& view, at::IntArrayRef shape);

// Values of the host, to compute with; they must outlive the tensor. On a GPU a copy that is made behind what this
// thread has called for so far, in pinned memory until then, of which LibTorch keeps some: for thousands of values.
at::Tensor tensor_from_host(std::span<const int64_t> values);
at::Tensor tensor_from_host(std::span<const float> values);

inline const std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

}  // namespace sluice
