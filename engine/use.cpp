// A visit's turn on the caller's thread, and the control hops of the compute lane: close and clip.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "core/ieee_arithmetic.h"
#include "engine/engine_impl.h"

namespace sluice {

Use::Use(State* state) : state_(state), number_(state->number) {}
Use::Use(Use&& other) noexcept : state_(std::exchange(other.state_, nullptr)), number_(other.number_) {}
Use::~Use() {
  if (state_ != nullptr) state_->engine->leave(number_);
}
auto Use::state() const -> State& {
  SLUICE_CHECK(state_ != nullptr && state_->operands != nullptr && state_->number == number_, "this turn is over");
  return *state_;
}
int Use::visit() const { return state().operands->visit; }
int Use::micro_batch() const { return state().operands->micro_batch; }
Pass Use::pass() const { return state().pass; }
std::span<const WeightView> Use::weights() const { return state().weights; }
std::span<const TensorView> Use::inputs() const { return state().inputs; }
std::span<const TensorView> Use::outputs() const { return state().outputs; }
std::span<const TensorView> Use::output_gradients() const { return state().output_gradients; }
std::span<const TensorView> Use::input_gradients() const { return state().input_gradients; }
std::span<std::byte> Use::graph() const { return state().graph; }
double Use::loss_scale() const { return state().engine->captured.loss_scale; }
void Use::report_loss(const double* loss) {
  state().engine->device->add_number(loss, &state().engine->running.loss_sum);
}

void Use::contribute(int weight, const std::byte* gradient, DType dtype) {
  state().engine->contribute(weight, gradient, dtype);
}

void Use::contribute_part(int weight, int64_t first, const GradientView& part) {
  state().engine->contribute_part(weight, first, part);
}

std::span<float> Use::open_gradient(int weight) {
  float* open = state().engine->zeroed_open(weight);
  return {open, static_cast<size_t>(state().weights[weight].parameter->elements)};
}

// What the turn sees: views of where the program's addresses say that its bytes are.
void Engine::Impl::fill_use(int hop, const ComputeOperands& next, Pass pass) {
  const VisitSpec& visit = model.visits[next.visit];
  const TurnAddresses at = addresses_of(model, *running.unit, next);
  std::byte* memory = device->memory();
  use.engine = this;
  ++use.number;
  use.hop = hop;
  use.operands = &next;
  use.pass = pass;
  use.graph = {};
  if (next.graph >= 0) {
    use.graph = {memory + next.graph, static_cast<size_t>(plan.options.graph_bytes[next.visit])};
  }
  use.weights.clear();
  const DType dtype = weights_dtype(plan.options.precision);
  for (size_t i = 0; i < visit.partitions.size(); ++i) {
    for (const Parameter& parameter : plan.geometry.parameters_of(visit.partitions[i])) {
      use.weights.push_back({&parameter, memory + at.weights[i] + plan.weights_bytes(parameter.offset), dtype});
    }
  }
  const bool backward = next.pass == Pass::kBackward;
  const std::span<const int64_t> none;
  fill_tensors(use.inputs, visit.takes, at.inputs);
  fill_tensors(use.outputs, visit.gives, backward ? none : at.outputs);
  fill_tensors(use.output_gradients, visit.gives, backward ? at.outputs : none);
  fill_tensors(use.input_gradients, visit.takes, at.input_gradients);
  fill_sums(use.input_sums, at.input_sums);
  fill_sums(use.output_sums, at.output_sums);
  use.open.clear();
  for (size_t i = 0; i < at.open.size(); ++i) {
    auto* base = reinterpret_cast<float*>(memory + at.open[i]);
    for (const Parameter& parameter : plan.geometry.parameters_of(visit.partitions[i])) {
      use.open.push_back(base + parameter.offset);
    }
  }
}

// No addresses: the pass has none of these.
void Engine::Impl::fill_tensors(std::vector<TensorView>& views, const std::vector<int>& tensors,
                                std::span<const int64_t> at) const {
  views.clear();
  for (size_t i = 0; i < at.size(); ++i) {
    const TensorSpec& tensor = model.tensors[tensors[i]];
    views.push_back({device->memory() + at[i], tensor.elements, tensor.dtype});
  }
}

void Engine::Impl::fill_sums(std::vector<float*>& sums, std::span<const int64_t> at) const {
  sums.clear();
  for (const int64_t sum : at) {
    sums.push_back(sum >= 0 ? reinterpret_cast<float*>(device->memory() + sum) : nullptr);
  }
}

// Gradients of tensors that several visits took: closed as their giver's turn begins.
void Engine::Impl::round_shared_gradients() {
  for (size_t i = 0; i < use.output_sums.size(); ++i) {
    if (use.output_sums[i] == nullptr) continue;
    const TensorView& to = use.output_gradients[i];
    device->round_to(use.output_sums[i], to.address, to.dtype, to.elements);
  }
}

void Engine::Impl::add_shared_contributions() {
  const VisitSpec& visit = model.visits[use.operands->visit];
  for (size_t i = 0; i < visit.takes.size(); ++i) {
    if (use.input_sums[i] == nullptr) continue;
    const TensorView& from = use.input_gradients[i];
    const bool first = uses.last_taker[visit.takes[i]] == use.operands->visit;
    device->add_gradient(use.input_sums[i], {from.address, from.dtype, from.elements},
                         first ? Contribution::kFirst : Contribution::kLater);
  }
}

// Of the weight of the turn whose gradient is contributed.
const Parameter& Engine::Impl::contributed_parameter(int weight) const {
  SLUICE_CHECK(use.pass == Pass::kBackward, "gradients are contributed in the backward pass");
  SLUICE_CHECK(weight >= 0 && weight < static_cast<int>(use.weights.size()), "the visit has no such weight");
  return *use.weights[weight].parameter;
}

void Engine::Impl::contribute(int weight, const std::byte* gradient, DType dtype) {
  const Parameter& parameter = contributed_parameter(weight);
  open_gradients.add(*device, plan.geometry.number_of(parameter), use.open[weight],
                     {gradient, dtype, parameter.elements});
}

void Engine::Impl::contribute_part(int weight, int64_t first, const GradientView& part) {
  SLUICE_CHECK(first >= 0 && first + part.elements <= contributed_parameter(weight).elements,
               "a part outside its gradient");
  device->add_gradient(zeroed_open(weight) + first, part, Contribution::kLater);
}

float* Engine::Impl::zeroed_open(int weight) {
  const Parameter& parameter = contributed_parameter(weight);
  open_gradients.fill(*device, plan.geometry.number_of(parameter),
                      {use.open[weight], static_cast<size_t>(parameter.elements)});
  return use.open[weight];
}

void Engine::Impl::run_control_hops() {
  const auto lane = running.unit->program.lane(Lane::kCompute);
  for (; running.next_compute < lane.size(); ++running.next_compute) {
    const int number = lane[running.next_compute];
    const Hop& hop = running.unit->program.hops()[number];
    if (hop.verb == Verb::kCompute) return;
    executor->enter(number);
    if (hop.verb == Verb::kClose) close_partition(hop);
    if (hop.verb == Verb::kClip) clip();
    executor->leave(number);
  }
}

// Scaled, rounded once, its part of the norm taken, parameter by parameter in ascending order: a chunk's closed
// gradient overwrites the start of the fp32 range it comes from, unless its home is the device. Padding closes to zero.
void Engine::Impl::close_partition(const Hop& hop) {
  const Geometry& geometry = plan.geometry;
  const Partition& partition = geometry.partitions()[hop.partition];
  std::byte* open = device->memory() + hop.device_offset;
  const float scale = 1.0f / static_cast<float>(plan.options.micro_batches);
  const DType dtype = plan.options.gradient_dtype;
  const auto cut = [&](int64_t first, int64_t end) {
    pieces.clear();
    while (first < end) {
      const int c = partition.first_chunk + static_cast<int>(first / geometry.chunk_elements());
      const Chunk& chunk = geometry.chunks()[c];
      const int64_t stop = std::min(end, chunk.first + chunk.elements);
      std::byte* base = plan.chunks[c].gradient == Home::kDevice ? device->memory() + plan.chunks[c].gradient_offset
                                                                 : open + chunk.first * 4;
      pieces.push_back({base + plan.gradient_bytes(first - chunk.first), stop - first});
      first = stop;
    }
  };
  const auto parameters = geometry.parameters_of(hop.partition);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    auto* values = reinterpret_cast<float*>(open) + parameter.offset;
    const int number = partition.first_parameter + static_cast<int>(i);
    open_gradients.fill(*device, static_cast<size_t>(number), {values, static_cast<size_t>(parameter.elements)});
    const int64_t end = parameter.offset + parameter.elements;
    cut(parameter.offset, end);
    device->close_gradient({.open = values, .scale = scale, .dtype = dtype, .pieces = pieces}, &norm_parts[number]);
    cut(end, i + 1 < parameters.size() ? parameters[i + 1].offset : partition.elements);
    for (const ClosedPiece& padding : pieces) device->zero(padding.to, plan.gradient_bytes(padding.elements));
  }
}

void Engine::Impl::clip() {
  const IeeeArithmetic arithmetic;
  running.clipped = clip_gradients(norm_parts, plan.geometry.canonical(),
                                   {.max_norm = options.max_norm, .loss_scale = captured.loss_scale});
}

}  // namespace sluice
