#include "tests/engine/toy_engine.h"

#include <random>
#include <stdexcept>

#include "core/checksum.h"
#include "offload/gradient_kernels.h"
#include "tests/engine/toy_values.h"

namespace sluice::testing {
namespace {

// A function of all that a graph refers to, so that the backward can tell whether that has moved or changed.
uint32_t graph_content(const Use& use) {
  uint32_t crc = 0;
  const auto add = [&crc](const std::byte* at, int64_t bytes) {
    crc = crc32c(crc, {reinterpret_cast<const std::byte*>(&at), sizeof(at)});
    crc = crc32c(crc, {at, static_cast<size_t>(bytes)});
  };
  for (const WeightView& w : use.weights()) add(w.address, w.parameter->elements * bytes_of(w.dtype));
  for (const TensorView& t : use.inputs()) add(t.address, t.elements * bytes_of(t.dtype));
  return crc;
}

// The forward fills its graph, the backward wants it whole.
void keep_or_check_graph(const Use& use) {
  if (use.graph().empty()) return;
  std::mt19937 values(graph_content(use));
  for (std::byte& byte : use.graph()) {
    const auto wanted = static_cast<std::byte>(values());
    if (use.pass() == Pass::kForward) byte = wanted;
    if (byte != wanted)
      throw std::logic_error("a graph is not what its forward kept, or what it refers to has changed");
  }
}

// `first_giver` is the model's: the others rewrite what that one gave.
void run_toy_turn(Use& use, const VisitSpec& visit, const std::vector<int>& first_giver, int64_t step) {
  ToyTurn turn{.visit = use.visit(),
               .micro_batch = use.micro_batch(),
               .step = step,
               .loss_scale = static_cast<float>(use.loss_scale())};
  keep_or_check_graph(use);
  std::vector<std::vector<float>> kept;
  kept.reserve(128);
  const auto widened = [&](const std::byte* at, int64_t elements, DType dtype) -> std::span<float> {
    kept.push_back(widen_all(at, elements, dtype));
    return kept.back();
  };
  const auto empty = [&](int64_t elements) -> std::span<float> {
    kept.emplace_back(static_cast<size_t>(elements));
    return kept.back();
  };
  for (const WeightView& w : use.weights()) turn.weights.push_back(widened(w.address, w.parameter->elements, w.dtype));
  for (const TensorView& t : use.inputs()) turn.inputs.push_back(widened(t.address, t.elements, t.dtype));
  for (const TensorView& t : use.output_gradients()) {
    turn.output_gradients.push_back(widened(t.address, t.elements, t.dtype));
  }
  for (const TensorView& t : use.outputs()) {
    const bool first = first_giver[visit.gives[turn.outputs.size()]] == use.visit();
    turn.found.push_back(first ? std::span<float>() : widened(t.address, t.elements, t.dtype));
    turn.outputs.push_back(empty(t.elements));
  }
  for (const TensorView& t : use.input_gradients()) turn.input_gradients.push_back(empty(t.elements));
  const auto give = [](std::span<const float> values, const TensorView& to) {
    round_to(values.data(), to.address, to.dtype, to.elements);
  };
  if (use.pass() != Pass::kBackward) {
    toy_forward(turn);
    for (size_t i = 0; i < turn.outputs.size(); ++i) give(turn.outputs[i], use.outputs()[i]);
    if (turn.outputs.empty()) {
      turn.loss = toy_loss(turn);
      use.report_loss(&turn.loss);
    }
    return;
  }
  for (const WeightView& w : use.weights()) turn.weight_gradients.push_back(empty(w.parameter->elements));
  toy_backward(turn);
  for (size_t i = 0; i < turn.weight_gradients.size(); ++i) {
    const DType dtype = use.weights()[i].dtype;
    const auto bytes = narrow({turn.weight_gradients[i].begin(), turn.weight_gradients[i].end()}, dtype);
    use.contribute(static_cast<int>(i), bytes.data(), dtype);
  }
  for (size_t i = 0; i < turn.input_gradients.size(); ++i) give(turn.input_gradients[i], use.input_gradients()[i]);
  if (turn.output_gradients.empty()) use.report_loss(&turn.loss);
}

}  // namespace

Compute toy_compute(const ModelSpec& model, const int64_t& step) {
  return [visits = model.visits, first_giver = ModelUses(model).first_giver, &step](Use& use) {
    run_toy_turn(use, visits[use.visit()], first_giver, step);
  };
}

RunRecord train_engine(Engine& engine, const ModelSpec& model, const ReferenceOptions& options) {
  RunRecord record;
  int64_t step = 0;
  const Compute compute = toy_compute(model, step);
  while (engine.step() < options.steps) {
    step = engine.step() + 1;
    record.steps.emplace_back(engine.train_step(options.learning_rate, compute));
  }
  const Digests digests = engine.digests();
  record.weights_crc32c = digests.weights_crc32c;
  record.state_crc32c = digests.state_crc32c;
  return record;
}

ParameterSource toy_source() {
  return [](const Parameter& parameter, int64_t first, std::span<float> into) {
    for (size_t i = 0; i < into.size(); ++i) into[i] = toy_initial(parameter.name, first + static_cast<int64_t>(i));
  };
}

}  // namespace sluice::testing
