// AdamW on the host, and its kin, exact to the bit: every implementation gives the bits of adam_scalar (numerics:
// ARCHITECTURE.md).
// Pure functions on the caller's memory; any thread, disjoint ranges in parallel.
//
// Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019), algorithm 2; Kingma and Ba, "Adam"
// (ICLR 2015) for the L2 form; arranged as torch.optim.AdamW arranges its bias corrections.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace sluice {

// With g the scaled gradient, p the master; one moment (m) or two (m, v):
//   kAdamW    decoupled decay                      kAdam  the same with L2: g = fma(weight_decay, p, g)
//   kAdagrad  L2; m = fma(g, g, m); p -= (lr * g) / (sqrt(m) + eps)
//   kLion     p *= decay; c = fma(1 - beta1, g - m, m); p -= sign(c) * lr; m = fma(1 - beta2, g - m, m)
//   kSgd      L2; m = fma(momentum, m, g); p -= lr * m
enum class AdamKind : uint8_t { kAdamW, kAdam, kAdagrad, kLion, kSgd };
Optimizer optimizer_of(AdamKind kind);  // AdamW and Adam keep the same state

struct AdamOptions {
  AdamKind kind = AdamKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0;         // kSgd
  uint64_t rounding_seed = 0;  // of moments in bf16
};

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
  uint32_t rounding_key = 0;  // stochastic_rounding.h
};
// t >= 1: the number of this applied step. scale = clip / loss_scale.
AdamStep adam_step(const AdamOptions& options, int64_t t, double scale);

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

enum class Finite : uint8_t { kYes, kNo };
// One fused pass over `elements`: unscale, clip, decay, Adam, new weights and residual. No alignment is needed beyond
// the element's own. Returns kNo if any p, m or v came out non-finite (everything is written all the same).
using AdamKernel = Finite (*)(const AdamStep& step, const AdamPlanes& planes, int64_t elements);

struct AdamFormat {
  Precision precision = Precision::kBf16;
  DType gradient = DType::kBf16;  // kFp32, or the weights' type
  DType moments = DType::kFp32;   // or kBf16: widened, updated in fp32, rounded stochastically. Lossy
};
// The moments' planes, of either type; the second may be null.
void set_moments(AdamPlanes& planes, DType moments, std::byte* moment1, std::byte* moment2);
// A programmer's error where there is no kernel for it.
void check_format(AdamFormat format);
// The planes of the same range from its element `element` on.
AdamPlanes planes_at(const AdamPlanes& planes, AdamFormat format, int64_t element);

// The reference, plain C++.
AdamKernel adam_scalar(AdamFormat format);
// The best SIMD kernel for this CPU (chosen at run time); same bits.
AdamKernel adam_simd(AdamFormat format);
// Names of the SIMD targets this CPU can run, best first ("AVX3", "AVX2", "SSE4", "SSSE3", then Highway's plain C++),
// and a kernel of one of them (null if unknown), for tests, benchmarks and `sluice info`. Targets without a fused
// multiply-add instruction (below AVX2) call std::fma lane by lane: right, and slow.
std::vector<std::string_view> adam_simd_targets();
AdamKernel adam_simd_for(AdamFormat format, std::string_view target);

}  // namespace sluice
