// A million fp32 parameters find their targets by AdamW: one plain function over pointers, a length, and the scalars of
// the step. Ranges that do not overlap may be updated by different threads; the bits do not depend on how they are cut.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "cpu_adam/adam.h"

int main() {
  constexpr int64_t kElements = 1 << 20;
  std::vector<float> weights(kElements), moment1(kElements), moment2(kElements), gradient(kElements), target(kElements);
  for (int64_t i = 0; i < kElements; ++i) target[i] = std::sin(0.001f * static_cast<float>(i));
  const sluice::AdamKernel update = sluice::adam_simd({sluice::Precision::kFp32, sluice::DType::kFp32});
  const sluice::AdamPlanes planes{.weights = reinterpret_cast<std::byte*>(weights.data()),
                                  .moment1 = moment1.data(),
                                  .moment2 = moment2.data(),
                                  .gradient = reinterpret_cast<const std::byte*>(gradient.data())};
  for (int64_t t = 1; t <= 200; ++t) {
    for (int64_t i = 0; i < kElements; ++i) gradient[i] = weights[i] - target[i];
    const auto step = sluice::adam_step({.learning_rate = 0.02, .weight_decay = 0}, t, /*scale=*/1.0);
    if (update(step, planes, kElements) == sluice::Finite::kNo) return 1;
  }
  float worst = 0;
  for (int64_t i = 0; i < kElements; ++i) worst = std::max(worst, std::abs(weights[i] - target[i]));
  std::printf("%s with %s\n", worst < 0.01f ? "every parameter has found its target" : "not there yet",
              sluice::adam_simd_targets().front().data());
}
