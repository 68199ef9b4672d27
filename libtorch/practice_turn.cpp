#include "libtorch/practice_turn.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "engine/plan.h"
#include "offload/gradient_kernels.h"

namespace sluice {
namespace {

constexpr int kSmallValue = 0x3c;  // every byte of a bf16 or fp32 this: about 0.01

}  // namespace

PracticeTurn::PracticeTurn(const ModelSpec& model, const Geometry& geometry, int visit, DType weights,
                           int64_t graph_bytes) {
  const VisitSpec& spec = model.visits[static_cast<size_t>(visit)];
  int64_t bytes = 0;
  const auto take = [&bytes](int64_t more) {
    const int64_t at = bytes;
    bytes += round_up(more, kDeviceAlignmentBytes);
    return at;
  };
  std::vector<int64_t> weights_at, open_at, tensors_at;
  for (const int p : spec.partitions) {
    weights_at.push_back(take(geometry.partitions()[p].elements * bytes_of(weights)));
    open_at.push_back(take(geometry.partitions()[p].elements * 4));
  }
  for (const auto* tensors : {&spec.takes, &spec.gives}) {
    for (const int t : *tensors) tensors_at.push_back(take(model.tensors[static_cast<size_t>(t)].bytes()));
  }
  const int64_t graph_at = take(graph_bytes);
  memory_ = Arena(bytes);
  std::memset(memory_.at(0), kSmallValue, static_cast<size_t>(bytes));
  for (size_t i = 0; i < spec.partitions.size(); ++i) {
    for (const Parameter& parameter : geometry.parameters_of(spec.partitions[i])) {
      weights_.push_back({&parameter, memory_.at(weights_at[i] + parameter.offset * bytes_of(weights)), weights});
      open_.push_back(reinterpret_cast<float*>(memory_.at(open_at[i])) + parameter.offset);
    }
  }
  graph_ = {memory_.at(graph_at), static_cast<size_t>(graph_bytes)};
  contributed_.resize(weights_.size());
  auto at = tensors_at.begin();
  const auto add = [&](std::vector<TensorView>& views, int t) {
    const TensorSpec& tensor = model.tensors[static_cast<size_t>(t)];
    views.push_back({memory_.at(*at++), tensor.elements, tensor.dtype});
  };
  for (const int t : spec.takes) add(inputs_, t);
  for (const int t : spec.gives) add(outputs_, t);
}

void PracticeTurn::begin(Pass pass, Graph graph) {
  pass_ = pass;
  keeping_ = graph;
  std::fill(contributed_.begin(), contributed_.end(), Contributed::kNo);
}

void PracticeTurn::contribute(int weight, const std::byte* gradient, DType dtype) {
  Contributed& seen = contributed_[static_cast<size_t>(weight)];
  add_gradient(open_[static_cast<size_t>(weight)], gradient, dtype,
               weights_[static_cast<size_t>(weight)].parameter->elements,
               seen == Contributed::kYes ? Contribution::kLater : Contribution::kFirst);
  seen = Contributed::kYes;
}

void PracticeTurn::contribute_part(int weight, int64_t first, const std::byte* gradient, int64_t elements,
                                   DType dtype) {
  const auto which = static_cast<size_t>(weight);
  if (contributed_[which] == Contributed::kNo) {
    std::memset(open_[which], 0, static_cast<size_t>(weights_[which].parameter->elements) * sizeof(float));
  }
  contributed_[which] = Contributed::kYes;
  add_gradient(open_[which] + first, gradient, dtype, elements, Contribution::kLater);
}

}  // namespace sluice
