#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/layer_norm.h>

#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "libtorch/tensors.h"
#include "models/gpt2_head.h"

namespace sluice {

HeadModule::HeadModule(double epsilon, const HeadGrain& grain)
    : norm_weight(add_parameter("norm_weight")),
      norm_bias(add_parameter("norm_bias")),
      rows(add_parameter("rows")),
      grain_(grain),
      epsilon_(epsilon) {}

at::Tensor HeadModule::normed(const at::Tensor& x) const {
  return at::layer_norm(x, x.sizes().slice(1), norm_weight, norm_bias, epsilon_);
}

at::Tensor HeadModule::logits_of(const at::Tensor& normed) const { return product(normed, rows.t()); }

Targets::Targets(std::span<const int64_t> targets, const TileRange& rows) : rows_(rows.size()) {
  for (const int64_t target : targets) {
    const bool present = target >= rows.first && target < rows.end;
    const auto token = static_cast<int64_t>(positions_.size());
    positions_.push_back(token * rows_ + (present ? target - rows.first : 0));
    present_.push_back(present ? 1.0f : 0.0f);
  }
  positions_there_ = tensor_from_host(positions_);
  present_there_ = tensor_from_host(present_);
  absent_there_ = at::eq(present_there_, 0).unsqueeze(1);
}

at::Tensor Targets::positions(int64_t first, int64_t tokens) const {
  return positions_there_.narrow(0, first, tokens) - first * rows_;
}
at::Tensor Targets::select(const at::Tensor& values, int64_t first) const {
  return values.flatten().index_select(0, positions(first, values.size(0))).unsqueeze(1);
}
void Targets::subtract_one(at::Tensor& values, int64_t first) const {
  const int64_t tokens = values.size(0);
  values.view({-1}).index_add_(0, positions(first, tokens), present_there_.narrow(0, first, tokens), -1);
}
at::Tensor Targets::absent(int64_t first, int64_t tokens) const { return absent_there_.narrow(0, first, tokens); }
bool Targets::all_absent(int64_t first, int64_t tokens) const {
  const auto begin = present_.begin() + first;
  return std::none_of(begin, begin + tokens, [](float present) { return present > 0; });
}
int64_t Targets::count() const { return std::count(present_.begin(), present_.end(), 1.0f); }

at::Tensor tokens_of(const TensorView& view, const TileRange& tokens, int64_t width) {
  return tensor_of({.address = view.address + tokens.first * width * bytes_of(view.dtype),
                    .elements = view.elements - tokens.first * width,
                    .dtype = view.dtype},
                   {tokens.size(), width});
}

WithGraph normed_with_graph(const HeadModule& module, const at::Tensor& x) {
  return with_graph(x, [&](const at::Tensor& leaf) { return module.normed(leaf); });
}

at::Tensor differentiate_logits(const HeadModule& module, VisitTurn& turn, WithGraph made, at::Tensor logits_gradient) {
  const int64_t width = made.leaf.size(1), count = logits_gradient.size(1),
                step = head_gradient_rows(module.grain(), width);
  for (int64_t row = 0; row < count; row += step) {
    const int64_t rows = std::min(step, count - row);
    const at::Tensor part = product(logits_gradient.narrow(1, row, rows).t(), made.value.detach()).contiguous();
    turn.contribute_part(kHeadRows, row * width, {bytes_of(part), dtype_of(part), part.numel()});
  }
  const at::Tensor normed_gradient = product(logits_gradient, module.rows.detach());
  logits_gradient.reset();
  return differentiate(turn, std::move(made), normed_gradient,
                       {{kHeadNormWeight, module.norm_weight}, {kHeadNormBias, module.norm_bias}});
}

void fill_logits(const HeadModule& module, const VisitTurn& turn, const Gpt2Tokens& tokens, const TileRange& rows) {
  SLUICE_CHECK(rows.end <= static_cast<int64_t>(tokens.logits.size()), "one logit for each entry of the vocabulary");
  const int64_t width = module.norm_weight.size(0), last = tokens.count() - 1;
  const at::Tensor logits = module.logits_of(module.normed(tokens_of(turn.inputs()[0], {last, last + 1}, width)));
  at::from_blob(tokens.logits.data() + rows.first, {1, rows.size()}, at::TensorOptions().dtype(c10::ScalarType::Float))
      .copy_(logits);
}

void report_mean(VisitTurn& turn, at::Tensor sum, int64_t count) {
  if (count > 0) sum.div_(count);
  turn.report_loss(sum.const_data_ptr<double>());
}

}  // namespace sluice
