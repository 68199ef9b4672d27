// AdamW on the host, and its kin (core/adam_step.h has their formulas), exact to the bit: every implementation gives
// the bits of adam_scalar (numerics: ARCHITECTURE.md). Pure functions on the caller's memory; any thread, disjoint
// ranges in parallel. Bias corrections are arranged as torch.optim.AdamW arranges them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/adam_step.h"
#include "core/dtype.h"
#include "core/geometry.h"

namespace sluice {

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

// t >= 1: the number of this applied step. scale = clip / loss_scale.
AdamStep adam_step(const AdamOptions& options, int64_t t, double scale);

// The moments' planes, of either type; the second may be null.
void set_moments(AdamPlanes& planes, DType moments, std::byte* moment1, std::byte* moment2);
// The planes of a chunk's whole records; `state` has `layout`.
struct ChunkRecords {
  const RecordLayout& layout;
  std::byte* weights = nullptr;
  std::byte* state = nullptr;
  const std::byte* gradient = nullptr;
};
AdamPlanes planes_of_records(AdamFormat format, const ChunkRecords& records);
// The planes of the same range from its element `element` on.
AdamPlanes planes_at(const AdamPlanes& planes, AdamFormat format, int64_t element);

// The reference, plain C++.
AdamKernel adam_scalar(AdamFormat format);
// The best SIMD kernel for this CPU (chosen at run time); same bits.
AdamKernel adam_simd(AdamFormat format);
// Names of the SIMD targets this CPU can run, best first ("AVX3_DL", "AVX3", "AVX2", "SSE4", "SSSE3", then Highway's
// plain C++), and a kernel of one of them (null if unknown), for tests, benchmarks and `sluice info`. Targets without a
// fused multiply-add instruction (below AVX2) call std::fma lane by lane: right, and slow.
std::vector<std::string_view> adam_simd_targets();
AdamKernel adam_simd_for(AdamFormat format, std::string_view target);

}  // namespace sluice
