// Gradients on the host twin of the device: adding contributions, closing, and their part of the norm. Exact order of
// operations as in ARCHITECTURE.md ("Numerics"); a CUDA device gives the same bits. Pure functions, any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace sluice {

enum class Contribution : uint8_t { kFirst, kLater };  // the first is stored, later ones are added

// Elements of a gradient, as compute leaves them.
struct GradientView {
  const std::byte* values = nullptr;
  DType dtype = DType::kBf16;
  int64_t elements = 0;
};
// open[i] = float(gradient[i])  or  open[i] + float(gradient[i]).
void add_gradient(float* open, const GradientView& gradient, Contribution which);

// What the norm's bits depend on, on every device.
constexpr int kNormTileElements = 4096, kNormLanes = 32;

// Rounds open[i] * scale to the dtype (nearest even) into what is closed, and returns the part of the norm: the sum of
// squares of the rounded values, in tiles of kNormTileElements from the first; within a tile, lane j of kNormLanes sums
// (double)g*g over elements congruent to j modulo kNormLanes in ascending order, lanes combine by the tree 16, 8, 4, 2,
// 1; tiles add in ascending order; all fp64. The output may be the memory of `open` or lie before it by any distance:
// values are read before they are overwritten. It may be cut: element i of the parameter goes to the piece that holds
// it.
struct ClosedPiece {
  std::byte* to = nullptr;  // where the piece's first element goes
  int64_t elements = 0;
};
struct Closing {
  const float* open = nullptr;
  float scale = 1;
  DType dtype = DType::kBf16;
  std::span<const ClosedPiece> pieces;
};
double close_gradient(const Closing& closing);

// Rounds fp32 to bf16 or fp16 (nearest even; NaN stays NaN), or copies fp32. In place allowed as above.
void round_to(const float* from, std::byte* to, DType dtype, int64_t elements);

}  // namespace sluice
