// Element types, precisions, and the planes of a record (numerics: ARCHITECTURE.md, "Numerics").
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace sluice {

enum class DType : uint8_t { kBf16, kFp16, kFp32 };
constexpr int64_t bytes_of(DType type) { return type == DType::kFp32 ? 4 : 2; }
std::string_view name_of(DType type);  // "bf16", "fp16", "fp32"

// What a run trains in. It fixes the planes of every record.
enum class Precision : uint8_t { kBf16, kFp16, kFp32 };
std::string_view name_of(Precision precision);
constexpr DType weights_dtype(Precision p) {
  return p == Precision::kBf16 ? DType::kBf16 : p == Precision::kFp16 ? DType::kFp16 : DType::kFp32;
}

// The magnitude from which on rounding to the weights' type gives no number: half a step above its largest.
constexpr float too_large_for(Precision p) {
  return p == Precision::kBf16   ? 0x1.FFp127F
         : p == Precision::kFp16 ? 65520.0F
                                 : std::numeric_limits<float>::infinity();
}

// What bytes are for. Weights and state are records of the store; a chunk's gradient and a visit's activations live for
// one step.
enum class Group : uint8_t { kWeights = 0, kState = 1, kGradient = 2, kActivations = 3 };
constexpr int kGroupCount = 4;
std::string_view name_of(Group group);

// Whose moments the state has: Adam's are two, of the others one. The numbers stand in stores.
enum class Optimizer : uint8_t { kAdam = 0, kAdagrad = 1, kLion = 2, kSgd = 3 };
std::string_view name_of(Optimizer optimizer);  // "Adam", "Adagrad", "Lion", "SGD"
constexpr int moments_of(Optimizer optimizer) { return optimizer == Optimizer::kAdam ? 2 : 1; }

// What fixes the planes of a run's records. A precision alone stands for Adam with moments in fp32.
struct RecordFormat {
  constexpr RecordFormat(Precision p, Optimizer o = Optimizer::kAdam, DType m = DType::kFp32)
      : precision(p), optimizer(o), moments(m) {}
  Precision precision;
  Optimizer optimizer;
  DType moments;  // fp32 or bf16
};

struct Plane {
  std::string_view name;      // "weights", "residual", "master", "moment1", "moment2"
  int64_t bytes_per_element;  // 2 or 4
};
constexpr int kMaxPlanes = 3;

// weights: 1 plane; state: bf16 residual+moments (10 B), fp16 master+moments (12 B), fp32 moments (8 B); 4 B less where
// there is one moment, 2 B less for each moment in bf16.
std::span<const Plane> planes_of(const RecordFormat& format, Group group);
int64_t bytes_per_element(const RecordFormat& format, Group group);
// What an update must read and write: both records and the closed gradient; fp16 weights follow from their master.
int64_t bytes_updated_per_element(RecordFormat format, DType gradient);

}  // namespace sluice
