#include "models/gpt2_module.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "libtorch/process.h"
#include "libtorch/tensors.h"
#include "models/gpt2_visits.h"

namespace sluice {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool must_widen(const at::Tensor& operand) { return operand.is_cpu() && !has_product_kernel(dtype_of(operand)); }

// a b, and a bias added to every row where there is one, in fp32; the result is rounded to the operands' type.
at::Tensor widened_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  constexpr auto kFloat = c10::ScalarType::Float;
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  const at::Tensor wide = a.to(kFloat);
  const int64_t step = product_columns(a.size(0), b.size(0)), columns = b.size(1);
  for (int64_t column = 0; column < columns; column += step) {
    const int64_t count = std::min(step, columns - column);
    const at::Tensor some = b.narrow(1, column, count).to(kFloat);
    result.narrow(1, column, count)
        .copy_(bias.defined() ? at::addmm(bias.narrow(0, column, count).to(kFloat), wide, some) : at::mm(wide, some));
  }
  return result;
}

// What autograd keeps of it is as narrow as the operands.
struct WidenedAffine : torch::autograd::Function<WidenedAffine> {
  static at::Tensor forward(AutogradContext* kept, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    kept->save_for_backward({x, weight});
    return widened_product(x, weight, bias);
  }
  static variable_list backward(AutogradContext* kept, const variable_list& gradients) {
    const variable_list saved = kept->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    return {product(gradient, saved[1].t()), product(saved[0].t(), gradient), at::sum(gradient, 0)};
  }
};

}  // namespace

at::Tensor BoundModule::add_parameter(const std::string& name) {
  return bound_.emplace_back(register_parameter(name, at::empty({0})));
}

void BoundModule::bind(std::span<const WeightView> weights) {
  SLUICE_CHECK(weights.size() == bound_.size(), "a visit's weights are not those of its module");
  for (size_t i = 0; i < weights.size(); ++i) bound_[i].set_data(tensor_of(weights[i]));
}

void BoundModule::unbind() {
  // Of the same type: another one would cut a kept graph off from the parameter.
  for (at::Tensor& parameter : bound_) parameter.set_data(at::empty({0}, parameter.options()));
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return must_widen(a) ? widened_product(a, b, {}) : at::mm(a, b);
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return must_widen(x) ? WidenedAffine::apply(x, weight, bias) : at::addmm(bias, x, weight);
}

void add_rows(VisitTurn& turn, int index, const at::Tensor& rows, const at::Tensor& gradients) {
  const std::span<float> open = turn.open_gradient(index);
  const int64_t width = gradients.size(1);
  tensor_at(open.data(), DType::kFp32, {static_cast<int64_t>(open.size()) / width, width})
      .index_add_(0, rows, gradients.to(c10::ScalarType::Float));
}

void contribute(VisitTurn& turn, int index, at::Tensor gradient) {
  if (!gradient.defined()) return;
  const at::Tensor whole = gradient.contiguous();
  turn.contribute(index, bytes_of(whole), dtype_of(whole));
}

WithGraph with_graph(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f) {
  const torch::autograd::AutoGradMode graph(true);
  WithGraph made{.leaf = x.detach().requires_grad_(true), .value = {}};
  made.value = f(made.leaf);
  return made;
}

at::Tensor differentiate(VisitTurn& turn, WithGraph made, const at::Tensor& gradient,
                         const std::vector<TurnWeight>& weights) {
  variable_list wanted = {made.leaf};
  for (const TurnWeight& weight : weights) wanted.push_back(weight.parameter);
  variable_list gradients = torch::autograd::grad({made.value}, wanted, {gradient});
  for (size_t i = 0; i < weights.size(); ++i) contribute(turn, weights[i].index, std::exchange(gradients[i + 1], {}));
  return gradients[0];
}

}  // namespace sluice
