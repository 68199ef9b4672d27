// What one pass of AdamW, or of its kin, over a range of elements takes: plain values that the host's kernels (cpu_adam)
// and a device's (offload) share. Every implementation gives the bits of cpu_adam's adam_scalar.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace sluice {

// With g the scaled gradient, p the master; one moment (m) or two (m, v):
//   kAdamW    decoupled decay                      kAdam  the same with L2: g = fma(weight_decay, p, g)
//   kAdagrad  L2; m = fma(g, g, m); p -= (lr * g) / (sqrt(m) + eps)
//   kLion     p *= decay; c = fma(1 - beta1, g - m, m); p -= sign(c) * lr; m = fma(1 - beta2, g - m, m)
//   kSgd      L2; m = fma(momentum, m, g); p -= lr * m
// Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019), algorithm 2; Kingma and Ba, "Adam" (ICLR
// 2015); Duchi, Hazan and Singer, "Adaptive subgradient methods" (JMLR 12, 2011); Chen et al., "Symbolic discovery of
// optimization algorithms" (NeurIPS 2023), algorithm 2; momentum as torch.optim.SGD has it, without dampening.
enum class AdamKind : uint8_t { kAdamW, kAdam, kAdagrad, kLion, kSgd };

// The scalars of one step, computed in double and rounded once.
struct AdamStep {
  AdamKind kind = AdamKind::kAdamW;
  float scale = 1;  // clip / loss_scale
  float decay = 1;  // 1 - lr * weight_decay
  float weight_decay = 0;
  float one_minus_beta1 = 0.1f, beta2 = 0.999f, one_minus_beta2 = 0.001f;
  float correction2 = 1;  // sqrt(1 - beta2^t)
  float epsilon = 1e-8f;
  float step_size = 1e-3f;  // lr / (1 - beta1^t); without bias correction lr
  float momentum = 0;
  uint32_t rounding_key = 0;  // core/stochastic_rounding.h
};

// The planes of a range of elements, all starting at the same element. What a precision does not have stays null.
struct AdamPlanes {
  std::byte* weights = nullptr;         // bf16 (high half of the split master), fp16, or fp32 (the master itself)
  int16_t* residual = nullptr;          // bf16 only
  float* master = nullptr;              // fp16 only
  float* moment1 = nullptr;             // moments in fp32
  float* moment2 = nullptr;             // ... of kinds with two moments
  uint16_t* half_moment1 = nullptr;     // moments in bf16
  uint16_t* half_moment2 = nullptr;     // ...
  const std::byte* gradient = nullptr;  // closed, of gradient_dtype
  int64_t element = 0;                  // the first one's number in the model: its counter for stochastic rounding
};

struct AdamFormat {
  Precision precision = Precision::kBf16;
  DType gradient = DType::kBf16;  // kFp32, or the weights' type
  DType moments = DType::kFp32;   // or kBf16: widened, updated in fp32, rounded stochastically. Lossy
};

enum class Finite : uint8_t { kYes, kNo };
// One fused pass over `elements`: unscale, clip, decay, Adam, new weights and residual. No alignment is needed beyond
// the element's own. Returns kNo if any m, v or weight came out non-finite (everything is written all the same).
using AdamKernel = Finite (*)(const AdamStep& step, const AdamPlanes& planes, int64_t elements);

// Consecutive elements with the same hyper-parameters.
struct AdamRun {
  AdamStep step;
  AdamPlanes planes;
  int64_t elements = 0;
};

}  // namespace sluice
