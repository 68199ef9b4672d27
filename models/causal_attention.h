// Causal scaled-dot-product attention. Includes LibTorch: for models' .cpp files only.
#pragma once
#include <ATen/core/Tensor.h>

#include "core/dtype.h"
#include "libtorch/process.h"

namespace sluice {

// Whether a CPU has the scores of short sequences whole, as one batched product, in place of LibTorch's fused kernel,
// which never keeps them: the latter takes two to three times as long in bf16. In fp32, in fp16, in bf16 on a CPU
// without a kernel for its products, and for longer sequences, whose scores would outgrow the rest of a block, the
// fused kernel runs. A GPU has its own (libtorch/cuda_module.cpp). It depends on the model's shape and the CPU alone,
// so it is the same wherever bytes live.
constexpr int64_t kWholeScoresSequence = 256;
inline bool has_whole_scores(DType type, int64_t sequence) {
  return type == DType::kBf16 && sequence <= kWholeScoresSequence && has_product_kernel(type);
}

// softmax(scale * query key^T) value over the keys at or before each query; all four [batch, heads, sequence, head
// width]. Differentiable.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale);

}  // namespace sluice
