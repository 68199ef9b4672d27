#include "tests/engine/toy_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/random.h"

namespace sluice::testing {
namespace {

// A few operations with exactly rounded results, kept within (-1, 1).
float squash(float x) { return x / (1.0f + std::fabs(x)); }

float mixed_weight(const ToyTurn& turn, int64_t i) {
  float sum = 0.25f;
  for (const auto& weights : turn.weights) sum += weights[static_cast<size_t>(i * 7 + 3) % weights.size()];
  return sum;
}

float data_value(const ToyTurn& turn, int64_t i) {
  return static_cast<float>(uniform_at(77, static_cast<uint64_t>(turn.step * 16 + turn.micro_batch), i)) - 0.5f;
}

float mixed_input(const ToyTurn& turn, int64_t i) {
  float sum = turn.inputs.empty() ? data_value(turn, i) : 0.0f;
  float factor = 1.0f;
  for (const auto& input : turn.inputs) {
    sum += factor * input[i];
    factor *= 0.75f;
  }
  return sum;
}

int64_t positions(const ToyTurn& turn) {
  if (!turn.inputs.empty()) return static_cast<int64_t>(turn.inputs[0].size());
  if (!turn.outputs.empty()) return static_cast<int64_t>(turn.outputs[0].size());
  return turn.output_gradients.empty() ? 64 : static_cast<int64_t>(turn.output_gradients[0].size());
}

}  // namespace

void toy_forward(ToyTurn& turn) {
  for (size_t k = 0; k < turn.outputs.size(); ++k) {
    for (size_t i = 0; i < turn.outputs[k].size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const float found = turn.found[k].empty() ? 0.0f : turn.found[k][i];
      turn.outputs[k][i] =
          found + squash(mixed_input(turn, at) * (1.0f + mixed_weight(turn, at)) + 0.125f * static_cast<float>(k));
    }
  }
}

double toy_loss(const ToyTurn& turn) {
  double loss = 0;
  for (int64_t i = 0; i < positions(turn); ++i) {
    const double error = static_cast<double>(mixed_input(turn, i) * mixed_weight(turn, i)) - 0.5;
    loss += error * error;
  }
  return loss / static_cast<double>(positions(turn));
}

void toy_backward(ToyTurn& turn) {
  const int64_t count = positions(turn);
  std::vector<float> back(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    if (turn.output_gradients.empty()) {
      sum = turn.loss_scale * squash(mixed_input(turn, i) * mixed_weight(turn, i) - 0.5f);
    }
    for (const auto& gradient : turn.output_gradients) sum += gradient[i];
    back[static_cast<size_t>(i)] = sum;
  }
  if (turn.output_gradients.empty()) turn.loss = toy_loss(turn);
  for (auto& gradient : turn.weight_gradients) {
    for (size_t j = 0; j < gradient.size(); ++j) {
      const auto i = static_cast<int64_t>(j) % count;
      gradient[j] = back[static_cast<size_t>(i)] * mixed_input(turn, i) + 0.001f * static_cast<float>(j % 13);
    }
  }
  std::vector<float> mixed(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) mixed[static_cast<size_t>(i)] = 0.5f + mixed_weight(turn, i);
  float factor = 1.0f;
  for (auto& gradient : turn.input_gradients) {
    for (int64_t i = 0; i < count; ++i) {
      gradient[i] = factor * back[static_cast<size_t>(i)] * mixed[static_cast<size_t>(i)];
    }
    factor *= 0.75f;
  }
}

float toy_initial(const std::string& parameter, int64_t element) {
  return static_cast<float>(0.3 * (uniform_at(5, stream_of(parameter), static_cast<uint64_t>(element)) - 0.5));
}

ModelSpec toy_model(const ToyOptions& options, Precision precision) {
  ModelSpec model;
  const bool share_partition = options.shape == ToyShape::kSharedPartition || options.shape == ToyShape::kBoth;
  const bool share_tensor = options.shape == ToyShape::kSharedTensor || options.shape == ToyShape::kBoth;
  for (int v = 0; v < options.visits; ++v) {
    const bool last = v == options.visits - 1;
    model.partitions.push_back({fmt::format("p{}", v),
                                {{fmt::format("b{}.bias", v), {options.elements % 61 + 5}},
                                 {fmt::format("b{}.weight", v), {(options.elements >> (v % 3)) + 1}}}});
    VisitSpec visit{fmt::format("v{}", v), {v}, {}, {}};
    if (v > 0) visit.takes.push_back(v - 1);
    if (share_tensor && v > 1 && v % 3 == 2) visit.takes.push_back(0);
    if (share_partition && last) visit.partitions.push_back(0);
    if (!last) {
      visit.gives.push_back(v);
      model.tensors.push_back({fmt::format("x{}", v), options.tensor_elements, weights_dtype(precision)});
    }
    model.visits.push_back(visit);
  }
  return model;
}

ModelSpec tiled_model(int layers, int tiles, Precision precision) {
  ModelSpec model;
  const auto partition = [&model](std::string name, int64_t elements) {
    model.partitions.push_back({name, {{name + ".weight", {elements}}}});
    return static_cast<int>(model.partitions.size()) - 1;
  };
  std::vector<int> borrowed;
  for (int tile = 0; tile < tiles; ++tile) borrowed.push_back(partition(fmt::format("embedding.{}", tile), 301 + tile));
  for (int layer = 0; layer <= layers; ++layer) {
    model.tensors.push_back({fmt::format("x{}", layer), 96, weights_dtype(precision)});
    const bool ends = layer == 0 || layer == layers;
    const int norm = layer == 0 ? -1 : partition(fmt::format("norm.{}", layer), 70);
    for (int tile = 0; tile < tiles; ++tile) {
      VisitSpec visit{fmt::format("layer.{}.{}", layer, tile), {}, {}, {layer}};
      if (ends) visit.partitions.push_back(borrowed[static_cast<size_t>(tile)]);
      if (!ends) visit.partitions.push_back(partition(fmt::format("tile.{}.{}", layer, tile), 450));
      if (norm >= 0) visit.partitions.push_back(norm);
      if (layer > 0) visit.takes.push_back(layer - 1);
      model.visits.push_back(visit);
    }
  }
  model.visits.push_back({"loss", {}, {layers}, {}});
  return model;
}

ModelSpec random_model(uint64_t seed, Precision precision) {
  std::mt19937_64 random(seed);
  const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  ModelSpec model;
  const int visits = 2 + static_cast<int>(below(39));
  const int64_t positions = 8 + below(120);
  for (int v = 0; v < visits; ++v) {
    VisitSpec visit{fmt::format("v{}", v), {}, {}, {}};
    const bool borrow = v > 0 && below(5) == 0;
    if (!borrow || below(2) == 0) {
      PartitionSpec partition{fmt::format("p{}", model.partitions.size()), {}};
      for (int64_t k = 0; k <= below(3); ++k) {
        partition.parameters.push_back({fmt::format("w{}.{}", model.partitions.size(), k), {1 + below(900)}});
      }
      visit.partitions.push_back(static_cast<int>(model.partitions.size()));
      model.partitions.push_back(partition);
    }
    if (borrow) {
      const int p = static_cast<int>(below(static_cast<int64_t>(model.partitions.size())));
      if (visit.partitions.empty() || visit.partitions[0] != p) visit.partitions.push_back(p);
    }
    const int newest = static_cast<int>(model.tensors.size()) - 1;
    const bool again = v > 0 && v < visits - 1 && below(4) == 0;  // rewrites the newest tensor, which nobody takes yet
    if (v > 0 && !again) visit.takes.push_back(newest);
    if (again && newest > 0) visit.takes.push_back(newest - 1);
    if (v > 1 && below(3) == 0) {
      const int t = static_cast<int>(below(static_cast<int64_t>(model.tensors.size())));
      const bool taken = !visit.takes.empty() && t == visit.takes[0];
      if (!taken && !(again && t == newest)) visit.takes.push_back(t);
    }
    if (again) visit.gives.push_back(newest);
    if (v < visits - 1 && !again) {
      visit.gives.push_back(static_cast<int>(model.tensors.size()));
      model.tensors.push_back({fmt::format("x{}", v), positions, weights_dtype(precision)});
    }
    model.visits.push_back(visit);
  }
  return model;
}

}  // namespace sluice::testing
