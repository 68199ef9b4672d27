#include "libtorch/practice_turn.h"

#include <algorithm>

#include "core/bytes.h"
#include "engine/plan.h"

namespace sluice {
namespace {

// Where everything lies, from the turn's first byte.
struct Layout {
  std::vector<int64_t> weights, open;  // of the visit's partitions
  std::vector<int64_t> tensors;        // that it takes, then those that it gives
  int64_t graph = 0, bytes = 0;
};

Layout layout_of(const PracticeTurn::Of& of) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  Layout layout;
  const auto take = [&layout](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += round_up(bytes, kDeviceAlignmentBytes);
    return at;
  };
  for (const int p : spec.partitions) {
    layout.weights.push_back(take(of.geometry.partitions()[p].elements * bytes_of(of.weights)));
    layout.open.push_back(take(of.geometry.partitions()[p].elements * 4));
  }
  for (const auto* tensors : {&spec.takes, &spec.gives}) {
    for (const int t : *tensors) layout.tensors.push_back(take(of.model.tensors[static_cast<size_t>(t)].bytes()));
  }
  layout.graph = take(of.graph_bytes);
  return layout;
}

}  // namespace

int64_t PracticeTurn::bytes(const Of& of) { return layout_of(of).bytes; }

PracticeTurn::PracticeTurn(const Of& of, Device& device, std::byte* at) : device_(device) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  const Layout layout = layout_of(of);
  for (size_t i = 0; i < spec.partitions.size(); ++i) {
    for (const Parameter& parameter : of.geometry.parameters_of(spec.partitions[i])) {
      weights_.push_back({&parameter, at + layout.weights[i] + parameter.offset * bytes_of(of.weights), of.weights});
      open_.push_back(reinterpret_cast<float*>(at + layout.open[i]) + parameter.offset);
    }
  }
  graph_ = {at + layout.graph, static_cast<size_t>(of.graph_bytes)};
  contributed_.resize(weights_.size());
  auto place = layout.tensors.begin();
  const auto add = [&](std::vector<TensorView>& views, int t) {
    const TensorSpec& tensor = of.model.tensors[static_cast<size_t>(t)];
    views.push_back({at + *place++, tensor.elements, tensor.dtype});
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
  device_.add_gradient(open_[static_cast<size_t>(weight)],
                       {gradient, dtype, weights_[static_cast<size_t>(weight)].parameter->elements},
                       seen == Contributed::kYes ? Contribution::kLater : Contribution::kFirst);
  seen = Contributed::kYes;
}

void PracticeTurn::contribute_part(int weight, int64_t first, const GradientView& part) {
  device_.add_gradient(open_gradient(weight).data() + first, part, Contribution::kLater);
}

std::span<float> PracticeTurn::open_gradient(int weight) {
  const auto which = static_cast<size_t>(weight);
  const int64_t elements = weights_[which].parameter->elements;
  if (contributed_[which] == Contributed::kNo) device_.zero(reinterpret_cast<std::byte*>(open_[which]), elements * 4);
  contributed_[which] = Contributed::kYes;
  return {open_[which], static_cast<size_t>(elements)};
}

}  // namespace sluice
