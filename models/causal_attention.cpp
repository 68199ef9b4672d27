#include "models/causal_attention.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "libtorch/tensors.h"

namespace sluice {
namespace {

at::Tensor by_whole_scores(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale) {
  const int64_t sequence = query.size(2), width = query.size(3);
  const auto matrices = [&](const at::Tensor& t) { return t.reshape({-1, sequence, width}); };
  const at::Tensor unseen =
      at::full({sequence, sequence}, -std::numeric_limits<double>::infinity(), query.options()).triu_(1);
  const at::Tensor scores = at::baddbmm(unseen, matrices(query), matrices(key).transpose(1, 2), 1, scale);
  return at::bmm(at::softmax(scores, -1), matrices(value)).view(query.sizes());
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale) {
  if (query.is_cpu() && has_whole_scores(dtype_of(query), query.size(2)))
    return by_whole_scores(query, key, value, scale);
  return at::scaled_dot_product_attention(query, key, value, {}, 0.0, true, scale);
}

}  // namespace sluice
