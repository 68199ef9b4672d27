// What the LibTorch modules of a GPT-2 share. Includes LibTorch: for models' .cpp files only.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <span>
#include <vector>

#include "engine/visit_turn.h"

namespace sluice {

// A module whose parameters are made empty: nothing of the model is allocated.
class BoundModule : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  // Points parameter i at weights[i], in the order of their registration. Nothing is copied.
  void bind(std::span<const WeightView> weights);
  void unbind();

 protected:
  // Registers an empty parameter; the returned tensor is the one that bind() fills.
  at::Tensor add_parameter(const std::string& name);

 private:
  std::vector<at::Tensor> bound_;
};

// Binds for the length of a visit.
class Binding {
 public:
  Binding(BoundModule& module, std::span<const WeightView> weights) : module_(module) { module_.bind(weights); }
  ~Binding() { module_.unbind(); }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

 private:
  BoundModule& module_;
};

// Products of matrices, rounded once. On a CPU without a kernel for their type (libtorch/process.h) they are widened to
// fp32, the left operand whole, the right one some columns at a time.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// x W + b with W as Hugging Face stores it for GPT-2: [in, out]. Under autograd too.
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// Adds gradients [n, width] to rows of weight `index`'s open gradient, in fp32, those of one row in the order they have
// here.
void add_rows(VisitTurn& turn, int index, const at::Tensor& rows, const at::Tensor& gradients);

// Contributes a gradient of weight `index` of the turn and drops it.
void contribute(VisitTurn& turn, int index, at::Tensor gradient);

// A value with the graph that leads to it from a leaf.
struct WithGraph {
  at::Tensor leaf, value;
};
// f(x); the leaf is x's memory, x itself stays outside of the graph.
WithGraph with_graph(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& f);

// A module's parameter, and which of the turn's weights it is bound to.
struct TurnWeight {
  int index = 0;
  at::Tensor parameter;
};
// From the value's gradient: contributes those of `weights`, in this order, and returns the leaf's. `made` is spent.
at::Tensor differentiate(VisitTurn& turn, WithGraph made, const at::Tensor& gradient,
                         const std::vector<TurnWeight>& weights);

}  // namespace sluice
