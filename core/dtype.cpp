#include "core/dtype.h"

#include "core/errors.h"

namespace sluice {
namespace {

constexpr Plane kWeights2[] = {{"weights", 2}};
constexpr Plane kWeights4[] = {{"weights", 4}};
constexpr Plane kStateBf16[] = {{"residual", 2}, {"moment1", 4}, {"moment2", 4}};
constexpr Plane kStateFp16[] = {{"master", 4}, {"moment1", 4}, {"moment2", 4}};
constexpr Plane kStateFp32[] = {{"moment1", 4}, {"moment2", 4}};
constexpr Plane kStateBf16Halves[] = {{"residual", 2}, {"moment1", 2}, {"moment2", 2}};
constexpr Plane kStateFp16Halves[] = {{"master", 4}, {"moment1", 2}, {"moment2", 2}};
constexpr Plane kStateFp32Halves[] = {{"moment1", 2}, {"moment2", 2}};
constexpr Plane kGradient2[] = {{"gradient", 2}};
constexpr Plane kGradient4[] = {{"gradient", 4}};

}  // namespace

std::string_view name_of(DType type) {
  switch (type) {
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp32:
      return "fp32";
  }
  SLUICE_CHECK(false, "unknown dtype");
  return {};
}

std::string_view name_of(Precision precision) { return name_of(weights_dtype(precision)); }

std::string_view name_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kAdam:
      return "Adam";
    case Optimizer::kAdagrad:
      return "Adagrad";
    case Optimizer::kLion:
      return "Lion";
    case Optimizer::kSgd:
      return "SGD";
  }
  SLUICE_CHECK(false, "unknown optimizer");
  return {};
}

std::string_view name_of(Group group) {
  switch (group) {
    case Group::kWeights:
      return "weights";
    case Group::kState:
      return "state";
    case Group::kGradient:
      return "gradient";
    case Group::kActivations:
      return "activations";
  }
  SLUICE_CHECK(false, "unknown group");
  return {};
}

std::span<const Plane> planes_of(const RecordFormat& format, Group group) {
  const bool wide = format.precision == Precision::kFp32;
  switch (group) {
    case Group::kWeights:
      return wide ? std::span<const Plane>(kWeights4) : std::span<const Plane>(kWeights2);
    case Group::kGradient:
      return wide ? std::span<const Plane>(kGradient4) : std::span<const Plane>(kGradient2);
    case Group::kActivations:
      check_failed("group", __FILE__, __LINE__, "activations have no planes");
    case Group::kState:
      break;
  }
  // The last plane is the second moment's.
  const size_t without = moments_of(format.optimizer) == 1 ? 1 : 0;
  const auto state = [&](std::span<const Plane> wide_moments, std::span<const Plane> halves) {
    const std::span<const Plane> planes = format.moments == DType::kBf16 ? halves : wide_moments;
    return planes.first(planes.size() - without);
  };
  switch (format.precision) {
    case Precision::kBf16:
      return state(kStateBf16, kStateBf16Halves);
    case Precision::kFp16:
      return state(kStateFp16, kStateFp16Halves);
    case Precision::kFp32:
      return state(kStateFp32, kStateFp32Halves);
  }
  SLUICE_CHECK(false, "unknown precision");
  return {};
}

int64_t bytes_per_element(const RecordFormat& format, Group group) {
  int64_t sum = 0;
  for (const Plane& plane : planes_of(format, group)) sum += plane.bytes_per_element;
  return sum;
}

int64_t bytes_updated_per_element(RecordFormat format, DType gradient) {
  const int64_t weights = bytes_per_element(format, Group::kWeights);
  const int64_t weight_reads = format.precision == Precision::kFp16 ? 0 : weights;
  return 2 * bytes_per_element(format, Group::kState) + weights + weight_reads + bytes_of(gradient);
}

}  // namespace sluice
