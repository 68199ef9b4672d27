#include "cpu_adam/adam.h"

#include <cmath>

#include "core/errors.h"
#include "core/stochastic_rounding.h"

namespace sluice {

AdamStep adam_step(const AdamOptions& options, int64_t t, double scale) {
  SLUICE_CHECK(t >= 1, "the first applied step is number 1");
  const double power = static_cast<double>(t);
  const bool corrected = moments_of(optimizer_of(options.kind)) == 2;
  const double correction1 = corrected ? 1.0 - std::pow(options.beta1, power) : 1.0;
  const double correction2 = corrected ? 1.0 - std::pow(options.beta2, power) : 1.0;
  return {
      .kind = options.kind,
      .scale = static_cast<float>(scale),
      .decay = static_cast<float>(1.0 - options.learning_rate * options.weight_decay),
      .weight_decay = static_cast<float>(options.weight_decay),
      .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
      .correction2 = static_cast<float>(std::sqrt(correction2)),
      .epsilon = static_cast<float>(options.epsilon),
      .step_size = static_cast<float>(options.learning_rate / correction1),
      .momentum = static_cast<float>(options.momentum),
      .rounding_key = rounding_key(options.rounding_seed, t),
  };
}

Optimizer optimizer_of(AdamKind kind) {
  switch (kind) {
    case AdamKind::kAdamW:
    case AdamKind::kAdam:
      return Optimizer::kAdam;
    case AdamKind::kAdagrad:
      return Optimizer::kAdagrad;
    case AdamKind::kLion:
      return Optimizer::kLion;
    case AdamKind::kSgd:
      break;
  }
  return Optimizer::kSgd;
}

void set_moments(AdamPlanes& planes, DType moments, std::byte* moment1, std::byte* moment2) {
  if (moments == DType::kBf16) {
    planes.half_moment1 = reinterpret_cast<uint16_t*>(moment1);
    planes.half_moment2 = reinterpret_cast<uint16_t*>(moment2);
  } else {
    planes.moment1 = reinterpret_cast<float*>(moment1);
    planes.moment2 = reinterpret_cast<float*>(moment2);
  }
}

AdamPlanes planes_of_records(AdamFormat format, const ChunkRecords& records) {
  AdamPlanes planes{.weights = records.weights, .gradient = records.gradient};
  int next = 0;
  const auto plane = [&] { return records.state + records.layout.plane_offset[next++]; };
  if (format.precision == Precision::kBf16) planes.residual = reinterpret_cast<int16_t*>(plane());
  if (format.precision == Precision::kFp16) planes.master = reinterpret_cast<float*>(plane());
  std::byte* const moment1 = plane();
  set_moments(planes, format.moments, moment1, next < records.layout.plane_count ? plane() : nullptr);
  return planes;
}

AdamPlanes planes_at(const AdamPlanes& planes, AdamFormat format, int64_t element) {
  AdamPlanes at = planes;
  at.weights += element * bytes_of(weights_dtype(format.precision));
  at.gradient += element * bytes_of(format.gradient);
  at.element += element;
  if (at.moment1) at.moment1 += element;
  if (at.half_moment1) at.half_moment1 += element;
  if (at.half_moment2) at.half_moment2 += element;
  if (at.moment2) at.moment2 += element;
  if (at.residual) at.residual += element;
  if (at.master) at.master += element;
  return at;
}

}  // namespace sluice
