#include "models/causal_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice::testing {
namespace {

constexpr double kScale = 0.25;

at::Tensor values(int64_t sequence, double period) {
  const at::Tensor numbers = at::arange(2 * 3 * sequence * 16, at::TensorOptions(c10::ScalarType::Double));
  return at::sin(numbers * period).view({2, 3, sequence, 16}).to(c10::ScalarType::BFloat16);
}

// In fp64.
at::Tensor written_out(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const auto wide = [](const at::Tensor& narrow) { return narrow.to(c10::ScalarType::Double); };
  const at::Tensor later = at::ones({query.size(2), query.size(2)}, c10::ScalarType::Bool).triu_(1);
  const at::Tensor scores = at::matmul(wide(query), wide(key).transpose(2, 3)) * kScale;
  return at::matmul(at::softmax(scores.masked_fill(later, -std::numeric_limits<double>::infinity()), -1), wide(value));
}

TEST(CausalAttention, is_the_same_with_whole_scores_up_to_256_tokens_and_by_the_fused_kernel_beyond) {
  for (const int64_t sequence : {1, 255, 256, 257}) {
    const at::Tensor query = values(sequence, 1.1), key = values(sequence, 2.3), value = values(sequence, 3.7);
    const at::Tensor found = causal_attention(query, key, value, kScale);
    EXPECT_LT((found - written_out(query, key, value)).abs().max().item<double>(), 0.02) << sequence;
    const bool whole = sequence <= 256 && has_product_kernel(DType::kBf16);
    EXPECT_EQ(has_whole_scores(DType::kBf16, sequence), whole) << sequence;
    EXPECT_FALSE(has_whole_scores(DType::kFp32, sequence)) << sequence;
    if (sequence == 1) continue;
    const at::Tensor fused = at::scaled_dot_product_attention(query, key, value, {}, 0.0, true, kScale);
    EXPECT_NE(at::equal(found, fused), whole) << sequence;
  }
}

}  // namespace
}  // namespace sluice::testing
