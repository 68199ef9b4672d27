#include "models/gpt2_module.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>

#include "core/errors.h"
#include "libtorch/tensors.h"

namespace sluice {

at::Tensor BoundModule::add_parameter(const std::string& name) {
  return bound_.emplace_back(register_parameter(name, at::empty({0})));
}

void BoundModule::bind(std::span<const WeightView> weights) {
  SLUICE_CHECK(weights.size() == bound_.size(), "a visit's weights are not those of its module");
  for (size_t i = 0; i < weights.size(); ++i) bound_[i].set_data(tensor_of(weights[i]));
}

void BoundModule::unbind() {
  for (at::Tensor& parameter : bound_) parameter.set_data(at::empty({0}));
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::addmm(bias, x, weight);
}

void contribute(VisitTurn& turn, int index, at::Tensor gradient) {
  if (!gradient.defined()) return;
  const at::Tensor whole = gradient.contiguous();
  turn.contribute(index, bytes_of(whole), dtype_of(whole));
}

}  // namespace sluice
