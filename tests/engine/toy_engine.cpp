#include "tests/engine/toy_engine.h"

#include <memory>
#include <random>
#include <stdexcept>

#include "core/checksum.h"
#include "offload/gradient_kernels.h"
#include "tests/engine/toy_values.h"

namespace sluice::testing {
namespace {

// A turn's work, which a device may come to when the call that asked for it has long returned.
class ToyWork {
 public:
  // `first_giver` is the model's: the others rewrite what that one gave.
  ToyWork(const Use& use, const VisitSpec& visit, const std::vector<int>& first_giver, int64_t step)
      : pass_(use.pass()),
        graph_(use.graph()),
        weights_(copied(use.weights())),
        inputs_(copied(use.inputs())),
        outputs_(copied(use.outputs())),
        output_gradients_(copied(use.output_gradients())),
        input_gradients_(copied(use.input_gradients())),
        turn_{.visit = use.visit(),
              .micro_batch = use.micro_batch(),
              .step = step,
              .loss_scale = static_cast<float>(use.loss_scale())} {
    for (const int tensor : visit.gives) begins_.push_back(first_giver[static_cast<size_t>(tensor)] == use.visit());
    kept_.reserve(128);
    if (pass_ != Pass::kBackward) return;
    for (const WeightView& w : weights_) {
      contributions_.emplace_back(static_cast<size_t>(w.parameter->elements * bytes_of(w.dtype)));
    }
  }

  bool is_sink() const { return outputs_.empty() && output_gradients_.empty(); }
  const double* loss() const { return &turn_.loss; }
  // In the dtype of its weight.
  const std::byte* contribution(size_t weight) const { return contributions_[weight].data(); }

  void run() {
    keep_or_check_graph();
    for (const WeightView& w : weights_) turn_.weights.push_back(widened(w.address, w.parameter->elements, w.dtype));
    for (const TensorView& t : inputs_) turn_.inputs.push_back(widened(t));
    for (const TensorView& t : output_gradients_) turn_.output_gradients.push_back(widened(t));
    for (const TensorView& t : outputs_) {
      turn_.found.push_back(begins_[turn_.outputs.size()] ? std::span<float>() : widened(t));
      turn_.outputs.push_back(empty(t.elements));
    }
    for (const TensorView& t : input_gradients_) turn_.input_gradients.push_back(empty(t.elements));
    if (pass_ == Pass::kBackward) return backward();
    toy_forward(turn_);
    for (size_t i = 0; i < outputs_.size(); ++i) give(turn_.outputs[i], outputs_[i]);
    if (is_sink()) turn_.loss = toy_loss(turn_);
  }

 private:
  template <typename View>
  static std::vector<View> copied(std::span<const View> views) {
    return {views.begin(), views.end()};
  }
  std::span<float> widened(const std::byte* at, int64_t elements, DType dtype) {
    kept_.push_back(widen_all(at, elements, dtype));
    return kept_.back();
  }
  std::span<float> widened(const TensorView& t) { return widened(t.address, t.elements, t.dtype); }
  std::span<float> empty(int64_t elements) {
    kept_.emplace_back(static_cast<size_t>(elements));
    return kept_.back();
  }
  static void give(std::span<const float> values, const TensorView& to) {
    round_to(values.data(), to.address, to.dtype, to.elements);
  }

  void backward() {
    for (const WeightView& w : weights_) turn_.weight_gradients.push_back(empty(w.parameter->elements));
    toy_backward(turn_);
    for (size_t i = 0; i < weights_.size(); ++i) {
      round_to(turn_.weight_gradients[i].data(), contributions_[i].data(), weights_[i].dtype,
               weights_[i].parameter->elements);
    }
    for (size_t i = 0; i < input_gradients_.size(); ++i) give(turn_.input_gradients[i], input_gradients_[i]);
  }

  // A function of all that a graph refers to, so that the backward can tell whether that has moved or changed.
  uint32_t graph_content() const {
    uint32_t crc = 0;
    const auto add = [&crc](const std::byte* at, int64_t bytes) {
      crc = crc32c(crc, {reinterpret_cast<const std::byte*>(&at), sizeof(at)});
      crc = crc32c(crc, {at, static_cast<size_t>(bytes)});
    };
    for (const WeightView& w : weights_) add(w.address, w.parameter->elements * bytes_of(w.dtype));
    for (const TensorView& t : inputs_) add(t.address, t.elements * bytes_of(t.dtype));
    return crc;
  }

  // The forward fills its graph, the backward wants it whole.
  void keep_or_check_graph() {
    if (graph_.empty()) return;
    std::mt19937 values(graph_content());
    for (std::byte& byte : graph_) {
      const auto wanted = static_cast<std::byte>(values());
      if (pass_ == Pass::kForward) byte = wanted;
      if (byte != wanted)
        throw std::logic_error("a graph is not what its forward kept, or what it refers to has changed");
    }
  }

  Pass pass_;
  std::span<std::byte> graph_;
  std::vector<WeightView> weights_;
  std::vector<TensorView> inputs_, outputs_, output_gradients_, input_gradients_;
  std::vector<bool> begins_;  // per output: nobody has given it before
  ToyTurn turn_;
  std::vector<std::vector<std::byte>> contributions_;  // per weight
  std::vector<std::vector<float>> kept_;
};

}  // namespace

Compute toy_compute(const ModelSpec& model, const int64_t& step, const Launch& launch) {
  return [visits = model.visits, first_giver = ModelUses(model).first_giver, &step, launch](Use& use) {
    const auto work = std::make_shared<ToyWork>(use, visits[static_cast<size_t>(use.visit())], first_giver, step);
    launch([work] { work->run(); });
    if (use.pass() == Pass::kBackward) {
      for (size_t i = 0; i < use.weights().size(); ++i) {
        use.contribute(static_cast<int>(i), work->contribution(i), use.weights()[i].dtype);
      }
    }
    if (work->is_sink()) use.report_loss(work->loss());
    launch([work] {});  // until here it is read
  };
}

RunRecord train_engine(Engine& engine, const ModelSpec& model, const ReferenceOptions& options, const Launch& launch) {
  RunRecord record;
  int64_t step = 0;
  const Compute compute = toy_compute(model, step, launch);
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
