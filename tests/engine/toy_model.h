// Made-up visit lists for tests: plain arithmetic in which every byte of every weight, tensor and gradient counts, so
// that a byte that went astray changes losses and digests. The "gradients" need not be derivatives: only functions of
// all that a turn may read.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "engine/model.h"

namespace sluice::testing {

// A turn as the toy sees it, whoever drives it: the engine, or the reference that keeps everything in memory.
struct ToyTurn {
  int visit = 0, micro_batch = 0;
  int64_t step = 0;
  float loss_scale = 1;
  std::vector<std::span<const float>> weights;  // widened
  std::vector<std::span<const float>> inputs, output_gradients;
  std::vector<std::span<float>> outputs, input_gradients, weight_gradients;
  std::vector<std::span<const float>> found;  // per output: what an earlier visit left there, or empty
  double loss = 0;
};
void toy_forward(ToyTurn& turn);
// Fills input and weight gradients; a sink (no outputs) also the loss. Input gradients may alias inputs.
void toy_backward(ToyTurn& turn);
double toy_loss(const ToyTurn& turn);

// Initial value of an element.
float toy_initial(const std::string& parameter, int64_t element);

enum class ToyShape { kChain, kSharedPartition, kSharedTensor, kBoth };
struct ToyOptions {
  int visits = 4;
  ToyShape shape = ToyShape::kChain;
  int64_t elements = 700;        // of the largest parameter
  int64_t tensor_elements = 96;  // of each boundary tensor
};
// A chain of visits with one partition each; kSharedPartition: the last visit also borrows the first one's partition;
// kSharedTensor: every third visit also takes the first visit's output.
ModelSpec toy_model(const ToyOptions& options, Precision precision);
// Layers in tiles: visits that each rewrite what the one before gave and read what all of them read, on a partition of
// their own, one that their layer's tiles share, and, in the first layer and the last, one that both borrow. The sink
// has no partition.
ModelSpec tiled_model(int layers, int tiles, Precision precision);
// A random list: 2-40 visits, borrowed partitions, tensors with several readers and givers. A function of the seed.
ModelSpec random_model(uint64_t seed, Precision precision);

}  // namespace sluice::testing
