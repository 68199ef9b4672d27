#include "libtorch/stand_in_turn.h"

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "engine/plan.h"

namespace sluice {
namespace {

// Where everything lies, from the turn's first byte.
struct Layout {
  std::vector<int64_t> weights, open;  // of the visit's partitions
  std::vector<int64_t> tensors;        // that it takes, then those that it gives
  int64_t bytes = 0;
};

Layout layout_of(const StandInTurn::Of& of) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  Layout layout;
  const auto take = [&layout](int64_t bytes) {
    return std::exchange(layout.bytes, layout.bytes + round_up(bytes, kDeviceAlignmentBytes));
  };
  for (const int p : spec.partitions) {
    layout.weights.push_back(take(of.geometry.partitions()[p].elements * bytes_of(of.weights)));
    layout.open.push_back(take(of.geometry.partitions()[p].elements * 4));
  }
  for (const auto* tensors : {&spec.takes, &spec.gives}) {
    for (const int t : *tensors) layout.tensors.push_back(take(of.model.tensors[static_cast<size_t>(t)].bytes()));
  }
  return layout;
}

}  // namespace

int64_t StandInTurn::bytes(const Of& of) { return layout_of(of).bytes; }

StandInTurn::StandInTurn(const Of& of, std::byte* at) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  const Layout layout = layout_of(of);
  for (size_t i = 0; i < spec.partitions.size(); ++i) {
    for (const Parameter& parameter : of.geometry.parameters_of(spec.partitions[i])) {
      weights_.push_back({&parameter, at + layout.weights[i] + parameter.offset * bytes_of(of.weights), of.weights});
      open_.push_back(reinterpret_cast<float*>(at + layout.open[i]) + parameter.offset);
    }
  }
  auto place = layout.tensors.begin();
  const auto add = [&](std::vector<TensorView>& views, int t) {
    const TensorSpec& tensor = of.model.tensors[static_cast<size_t>(t)];
    views.push_back({at + *place++, tensor.elements, tensor.dtype});
  };
  for (const int t : spec.takes) add(inputs_, t);
  for (const int t : spec.gives) add(outputs_, t);
}

void StandInTurn::begin(Pass pass, std::span<std::byte> graph) {
  pass_ = pass;
  graph_ = graph;
}

std::span<float> StandInTurn::open_gradient(int weight) {
  const auto which = static_cast<size_t>(weight);
  return {open_[which], static_cast<size_t>(weights_[which].parameter->elements)};
}

PracticeTurn::PracticeTurn(const Of& of, Device& device, std::byte* at)
    : StandInTurn(of, at), device_(device), open_gradients_(weights().size()) {}

void PracticeTurn::begin(Pass pass, std::span<std::byte> graph) {
  StandInTurn::begin(pass, graph);
  open_gradients_.empty();
}

void PracticeTurn::contribute(int weight, const std::byte* gradient, DType dtype) {
  const std::span<float> open = StandInTurn::open_gradient(weight);
  open_gradients_.add(device_, static_cast<size_t>(weight), open.data(), {gradient, dtype, std::ssize(open)});
}

void PracticeTurn::contribute_part(int weight, int64_t first, const GradientView& part) {
  device_.add_gradient(open_gradient(weight).data() + first, part, Contribution::kLater);
}

std::span<float> PracticeTurn::open_gradient(int weight) {
  const std::span<float> open = StandInTurn::open_gradient(weight);
  open_gradients_.fill(device_, static_cast<size_t>(weight), open);
  return open;
}

}  // namespace sluice
