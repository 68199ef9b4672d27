#include "tests/models/memory_model.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/bytes.h"
#include "core/errors.h"
#include "offload/gradient_kernels.h"

namespace sluice::testing {

Bytes::Bytes(int64_t bytes)
    : memory(static_cast<std::byte*>(std::aligned_alloc(256, static_cast<size_t>(round_up(bytes, 256))))) {
  std::memset(memory.get(), 0xff, static_cast<size_t>(bytes));  // NaN: what is read before it is written shows
}
void Bytes::Free::operator()(std::byte* memory) const { std::free(memory); }

class MemoryModel::Turn final : public VisitTurn {
 public:
  Turn(MemoryModel& model, int visit, Pass pass) : model_(model), pass_(pass) {
    const VisitSpec& spec = model.spec().visits[static_cast<size_t>(visit)];
    for (const int partition : spec.partitions) {
      for (const Parameter& parameter : model.geometry_.parameters_of(partition)) {
        weights_.push_back({&parameter, model.weights_.at(parameter.name).data(), model.dtype_});
      }
    }
    const auto view = [&](const std::vector<Bytes>& in, int tensor) {
      const TensorSpec& boundary = model.spec().tensors[static_cast<size_t>(tensor)];
      return TensorView{in[static_cast<size_t>(tensor)].data(), boundary.elements, boundary.dtype};
    };
    for (const int tensor : spec.takes) inputs_.push_back(view(model.boundary_, tensor));
    for (const int tensor : spec.gives) {
      (pass == Pass::kBackward ? gradients_ : outputs_)
          .push_back(view(pass == Pass::kBackward ? model.boundary_gradient_ : model.boundary_, tensor));
    }
    if (pass != Pass::kBackward) return;
    input_gradients_ = inputs_;  // in place, where nobody else reads it
    for (size_t i = 0; i < spec.takes.size(); ++i) {
      if (model.uses_.shared_tensor(spec.takes[i])) input_gradients_[i] = view(model.boundary_gradient_, spec.takes[i]);
    }
  }
  Pass pass() const override { return pass_; }
  std::span<const WeightView> weights() const override { return weights_; }
  std::span<const TensorView> inputs() const override { return inputs_; }
  std::span<const TensorView> outputs() const override { return outputs_; }
  std::span<const TensorView> output_gradients() const override { return gradients_; }
  std::span<const TensorView> input_gradients() const override { return input_gradients_; }
  std::span<std::byte> graph() const override { return {}; }
  void contribute(int weight, const std::byte* gradient, DType dtype) override {
    contribute_part(weight, 0, {gradient, dtype, weights_[static_cast<size_t>(weight)].parameter->elements});
  }
  void contribute_part(int weight, int64_t first, const GradientView& part) override {
    std::vector<float>& open = model_.open_.at(weights_[static_cast<size_t>(weight)].parameter->name);
    SLUICE_CHECK(first + part.elements <= static_cast<int64_t>(open.size()), "a part outside its gradient");
    add_gradient(open.data() + first, part, Contribution::kLater);
  }
  std::span<float> open_gradient(int weight) override {
    return model_.open_.at(weights_[static_cast<size_t>(weight)].parameter->name);
  }
  double loss_scale() const override { return model_.loss_scale_; }
  void report_loss(const double* reported) override { loss = *reported; }
  double loss = 0;

 private:
  MemoryModel& model_;
  Pass pass_;
  std::vector<WeightView> weights_;
  std::vector<TensorView> inputs_, outputs_, gradients_, input_gradients_;
};

MemoryModel::MemoryModel(const Gpt2Config& config, const Gpt2Options& options, const ParameterSource& source)
    : model_(config, options),
      dtype_(weights_dtype(options.precision)),
      geometry_(model_.spec().partitions, int64_t{1} << 20),
      visits_(config, model_.options()),
      uses_(model_.spec()),
      sums_(model_.spec().tensors.size()) {
  for (const Parameter& parameter : geometry_.parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter.elements));
    source(parameter, 0, values);
    const auto& made = weights_.emplace(parameter.name, Bytes(parameter.elements * bytes_of(dtype_))).first->second;
    round_to(values.data(), made.data(), dtype_, parameter.elements);
    open_[parameter.name].resize(values.size());
  }
  for (const TensorSpec& tensor : spec().tensors) {
    boundary_.emplace_back(tensor.bytes());
    boundary_gradient_.emplace_back(tensor.bytes());
  }
}

void MemoryModel::run_visit(int visit, Pass pass, const Gpt2Tokens& tokens, double& loss) {
  const int last = static_cast<int>(spec().visits.size()) - 1;
  const VisitSpec& spec_of = spec().visits[static_cast<size_t>(visit)];
  const auto at = [](int tensor) { return static_cast<size_t>(tensor); };
  if (pass == Pass::kBackward) {
    for (const int tensor : spec_of.gives) {
      if (!uses_.shared_tensor(tensor)) continue;
      round_to(sums_[at(tensor)].data(), boundary_gradient_[at(tensor)].data(), spec().tensors[at(tensor)].dtype,
               spec().tensors[at(tensor)].elements);
    }
  }
  Turn turn(*this, visit, pass);
  visits_.run(visit, turn, tokens);
  if (visit == last) loss = turn.loss;
  if (pass != Pass::kBackward) return;
  for (const int tensor : spec_of.takes) {
    if (uses_.shared_tensor(tensor)) {
      const TensorSpec& shared = spec().tensors[at(tensor)];
      sums_[at(tensor)].resize(at(static_cast<int>(shared.elements)));
      add_gradient(sums_[at(tensor)].data(), {boundary_gradient_[at(tensor)].data(), shared.dtype, shared.elements},
                   uses_.last_taker[at(tensor)] == visit ? Contribution::kFirst : Contribution::kLater);
    } else {
      std::swap(boundary_[at(tensor)], boundary_gradient_[at(tensor)]);
    }
  }
}

std::vector<float> MemoryModel::gradient(const std::string& parameter) const {
  std::vector<float> whole;
  for (const auto& [name, open] : open_) {
    if (name == parameter) return open;
    const ParameterTile* const tile = model_.tiles().find(name);
    if (tile == nullptr || tile->whole.name != parameter) continue;
    whole.resize(static_cast<size_t>(tile->whole.elements()));
    for (int64_t i = 0; i < static_cast<int64_t>(open.size()); ++i) {
      whole[static_cast<size_t>(tile->first + i / tile->run * tile->stride + i % tile->run)] =
          open[static_cast<size_t>(i)];
    }
  }
  return whole;
}

double MemoryModel::run(Pass pass, const Gpt2Tokens& tokens) {
  const int visits = static_cast<int>(spec().visits.size());
  double loss = 0;
  for (int visit = 0; visit < visits; ++visit) run_visit(visit, pass, tokens, loss);
  return loss;
}

double MemoryModel::evaluate(const Gpt2Tokens& tokens) { return run(Pass::kEvaluate, tokens); }

double MemoryModel::train(const Gpt2Tokens& tokens, Workspace* workspace) {
  std::optional<WorkspaceScope> scope;
  if (workspace != nullptr) scope.emplace(*workspace);
  for (auto& [name, open] : open_) std::fill(open.begin(), open.end(), 0.0f);
  double loss = 0;
  run(Pass::kForward, tokens);
  for (int visit = static_cast<int>(spec().visits.size()) - 1; visit >= 0; --visit) {
    run_visit(visit, Pass::kBackward, tokens, loss);
  }
  return loss;
}

}  // namespace sluice::testing
