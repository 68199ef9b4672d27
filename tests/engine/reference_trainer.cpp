#include "tests/engine/reference_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "core/checksum.h"
#include "core/split_master.h"
#include "tests/engine/toy_values.h"

namespace sluice::testing {
namespace {

// The norm's part of one parameter, exactly in the order that ARCHITECTURE.md gives.
double norm_part_reference(const std::vector<float>& closed) {
  double sum = 0;
  for (size_t tile = 0; tile < closed.size(); tile += 4096) {
    double lanes[32] = {};
    for (size_t i = tile; i < std::min(closed.size(), tile + 4096); ++i) {
      lanes[(i - tile) % 32] += static_cast<double>(closed[i]) * closed[i];
    }
    for (int width = 16; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
    }
    sum += lanes[0];
  }
  return sum;
}

struct Weights {
  std::vector<std::byte> weights;
  std::vector<int16_t> residual;
  std::vector<float> master;
  std::vector<std::byte> moment1, moment2;  // of options.moments
  int64_t element = 0;                      // of the model, in the order of its partitions, padding counted
  std::vector<float> open;
  bool contributed = false;
};

// DeepSpeed's dynamic loss scale, by counts of iterations as its DynamicLossScaler (0.19.5) has it.
class ReferenceScale {
 public:
  explicit ReferenceScale(const LossScaleOptions& options)
      : options_(options), value_(options.first), hysteresis_(options.hysteresis) {}

  double value() const { return value_; }
  enum class Step : uint8_t { kApplied, kSkipped };
  void after(Step step) {
    if (options_.kind == LossScaleOptions::Kind::kStatic) return;
    const bool consecutive = options_.patience == LossScaleOptions::Patience::kAnewAfterGoodStep;
    if (step == Step::kSkipped) {
      if (hysteresis_ == 1) value_ = std::max(value_ / 2, options_.least);
      if (hysteresis_ > 1) --hysteresis_;
      last_overflow_ = iteration_;
    } else {
      const int64_t stable = iteration_ - last_overflow_ - 1;
      const bool raise = stable > 0 && stable % options_.window == 0;
      if (consecutive || raise) hysteresis_ = options_.hysteresis;
      if (raise) value_ *= 2;
    }
    ++iteration_;
  }

 private:
  LossScaleOptions options_;
  double value_;
  int64_t hysteresis_, iteration_ = 0, last_overflow_ = -1;
};

class Reference {
 public:
  Reference(const ModelSpec& model, const ReferenceOptions& options)
      : model_(model), options_(options), scale_(options.loss_scale) {
    int64_t element = 0;
    for (const PartitionSpec& partition : model.partitions) {
      for (const ParameterSpec& parameter : partition.parameters) {
        initialise(parameter);
        all_[parameter.name].element = element;
        element += (parameter.elements() + 127) / 128 * 128;
      }
    }
  }

  RunRecord run() {
    RunRecord record;
    for (int step = 1; step <= options_.steps; ++step) record.steps.push_back(one_step(step));
    const auto add = [](uint32_t& crc, const void* bytes, size_t size) {
      crc = crc32c(crc, {static_cast<const std::byte*>(bytes), size});
    };
    for (auto& [name, w] : all_) add(record.weights_crc32c, w.weights.data(), w.weights.size());
    if (options_.precision == Precision::kBf16) {
      for (auto& [name, w] : all_) add(record.state_crc32c, w.residual.data(), w.residual.size() * 2);
    }
    if (options_.precision == Precision::kFp16) {
      for (auto& [name, w] : all_) add(record.state_crc32c, w.master.data(), w.master.size() * 4);
    }
    for (auto& [name, w] : all_) add(record.state_crc32c, w.moment1.data(), w.moment1.size());
    if (moments_of(optimizer_of(options_.adam.kind)) == 2) {
      for (auto& [name, w] : all_) add(record.state_crc32c, w.moment2.data(), w.moment2.size());
    }
    return record;
  }

 private:
  void initialise(const ParameterSpec& parameter) {
    Weights& w = all_[parameter.name];
    const auto n = static_cast<size_t>(parameter.elements());
    w.residual.resize(n);
    w.master.resize(n);
    w.moment1.resize(n * static_cast<size_t>(bytes_of(options_.moments)));
    w.moment2 = w.moment1;
    w.weights.resize(n * static_cast<size_t>(bytes_of(dtype())));
    for (size_t i = 0; i < n; ++i) {
      const float value = toy_initial(parameter.name, static_cast<int64_t>(i));
      if (options_.precision == Precision::kBf16) {
        const SplitMaster split = split_master(value);
        std::memcpy(&w.weights[2 * i], &split.weight, 2);
        w.residual[i] = split.residual;
      } else if (options_.precision == Precision::kFp16) {
        const auto weight = static_cast<_Float16>(value);
        std::memcpy(&w.weights[2 * i], &weight, 2);
        w.master[i] = value;
      } else {
        std::memcpy(&w.weights[4 * i], &value, 4);
      }
    }
  }

  DType dtype() const { return weights_dtype(options_.precision); }

  // Fills a turn with views of widened copies; `kept` owns them.
  ToyTurn turn(int visit, int m, int64_t step, std::vector<std::vector<float>>& kept) {
    ToyTurn turn{.visit = visit, .micro_batch = m, .step = step, .loss_scale = static_cast<float>(scale_.value())};
    kept.reserve(64);
    for (int p : model_.visits[visit].partitions) {
      for (const ParameterSpec& parameter : model_.partitions[p].parameters) {
        kept.push_back(widen_all(all_[parameter.name].weights.data(), parameter.elements(), dtype()));
        turn.weights.push_back(kept.back());
      }
    }
    for (int t : model_.visits[visit].takes) {
      kept.push_back(widen_all(tensors_[{t, m}].data(), model_.tensors[t].elements, model_.tensors[t].dtype));
      turn.inputs.push_back(kept.back());
    }
    return turn;
  }

  void forward(int visit, int m, int64_t step) {
    std::vector<std::vector<float>> kept;
    ToyTurn t = turn(visit, m, step, kept);
    for (int give : model_.visits[visit].gives) {
      const TensorSpec& tensor = model_.tensors[give];
      const auto found = tensors_.find({give, m});
      t.found.emplace_back();
      if (found != tensors_.end()) {
        t.found.back() = kept.emplace_back(widen_all(found->second.data(), tensor.elements, tensor.dtype));
      }
      t.outputs.push_back(kept.emplace_back(static_cast<size_t>(tensor.elements)));
    }
    toy_forward(t);
    for (size_t i = 0; i < t.outputs.size(); ++i) {
      const int give = model_.visits[visit].gives[i];
      tensors_[{give, m}] = narrow({t.outputs[i].begin(), t.outputs[i].end()}, model_.tensors[give].dtype);
    }
  }

  double backward(int visit, int m, int64_t step, const std::vector<int>& takers) {
    std::vector<std::vector<float>> kept;
    ToyTurn t = turn(visit, m, step, kept);
    for (int give : model_.visits[visit].gives) {
      std::vector<float>& gradient = tensor_gradients_[{give, m}];
      if (takers[give] > 1) {  // an open gradient is rounded once, when its giver needs it
        const std::vector<std::byte> closed = narrow(gradient, model_.tensors[give].dtype);
        gradient = widen_all(closed.data(), model_.tensors[give].elements, model_.tensors[give].dtype);
      }
      t.output_gradients.push_back(gradient);
    }
    for (int take : model_.visits[visit].takes) {
      kept.emplace_back(static_cast<size_t>(model_.tensors[take].elements));
      t.input_gradients.push_back(kept.back());
    }
    for (int p : model_.visits[visit].partitions) {
      for (const ParameterSpec& parameter : model_.partitions[p].parameters) {
        kept.emplace_back(static_cast<size_t>(parameter.elements()));
        t.weight_gradients.push_back(kept.back());
      }
    }
    toy_backward(t);
    size_t next = 0;
    for (int p : model_.visits[visit].partitions) {
      for (const ParameterSpec& parameter : model_.partitions[p].parameters) {
        contribute(all_[parameter.name], t.weight_gradients[next++]);
      }
    }
    for (size_t i = 0; i < t.input_gradients.size(); ++i) {
      const int take = model_.visits[visit].takes[i];
      const DType type = model_.tensors[take].dtype;
      const auto rounded = narrow({t.input_gradients[i].begin(), t.input_gradients[i].end()}, type);
      const auto values = widen_all(rounded.data(), model_.tensors[take].elements, type);
      std::vector<float>& sum = tensor_gradients_[{take, m}];
      if (sum.empty()) {
        sum = values;
      } else {
        for (size_t k = 0; k < values.size(); ++k) sum[k] += values[k];
      }
    }
    return t.loss;
  }

  // A contribution arrives in the weights' type and is added in fp32.
  void contribute(Weights& w, std::span<const float> gradient) {
    const auto bytes = narrow({gradient.begin(), gradient.end()}, dtype());
    const auto values = widen_all(bytes.data(), static_cast<int64_t>(gradient.size()), dtype());
    if (!w.contributed) w.open = values;
    if (w.contributed) {
      for (size_t i = 0; i < values.size(); ++i) w.open[i] += values[i];
    }
    w.contributed = true;
  }

  StepRecord one_step(int step) {
    tensors_.clear();
    tensor_gradients_.clear();
    for (auto& [name, w] : all_) w.contributed = false;
    const ModelUses uses(model_);
    const int last = static_cast<int>(model_.visits.size()) - 1;
    for (int v = 0; v < last; ++v) {
      for (int m = 0; m < options_.micro_batches; ++m) forward(v, m, step);
    }
    StepRecord record;
    for (int v = last; v >= 0; --v) {
      for (int m = 0; m < options_.micro_batches; ++m) record.loss += backward(v, m, step, uses.takers);
    }
    record.loss /= options_.micro_batches;
    const float mean = 1.0f / static_cast<float>(options_.micro_batches);
    double sum = 0;
    std::map<std::string, std::vector<std::byte>> closed;
    for (auto& [name, w] : all_) {
      for (float& value : w.open) value *= mean;
      closed[name] = narrow(w.open, options_.gradient_dtype);
      sum += norm_part_reference(
          widen_all(closed[name].data(), static_cast<int64_t>(w.open.size()), options_.gradient_dtype));
    }
    record.loss_scale = scale_.value();
    record.grad_norm = std::sqrt(sum) / record.loss_scale;
    record.skipped = !std::isfinite(record.grad_norm);
    scale_.after(record.skipped ? ReferenceScale::Step::kSkipped : ReferenceScale::Step::kApplied);
    if (!record.skipped) apply(closed, record);
    return record;
  }

  AdamStep step_of(const std::string& parameter, double scale) const {
    AdamOptions adam = options_.adam;
    adam.learning_rate = options_.learning_rate;
    for (const ParameterGroup& group : options_.groups) {
      if (applied_ < options_.groups_from || std::ranges::count(group.parameters, parameter) == 0) continue;
      adam = group.adam;
      adam.learning_rate = options_.learning_rate * group.learning_rate_factor;
    }
    return adam_step(adam, applied_, scale);
  }

  void apply(const std::map<std::string, std::vector<std::byte>>& closed, const StepRecord& record) {
    const double clip = options_.max_norm > 0 ? std::min(1.0, options_.max_norm / (record.grad_norm + 1e-6)) : 1.0;
    ++applied_;
    const AdamKernel kernel = adam_scalar({options_.precision, options_.gradient_dtype, options_.moments});
    for (auto& [name, w] : all_) {
      AdamPlanes planes{.weights = w.weights.data(),
                        .residual = w.residual.data(),
                        .master = w.master.data(),
                        .gradient = closed.at(name).data(),
                        .element = w.element};
      set_moments(planes, options_.moments, w.moment1.data(), w.moment2.data());
      kernel(step_of(name, clip / record.loss_scale), planes, static_cast<int64_t>(w.residual.size()));
    }
  }

  const ModelSpec& model_;
  const ReferenceOptions& options_;
  ReferenceScale scale_;
  int64_t applied_ = 0;
  std::map<std::string, Weights> all_;  // canonical name order
  std::map<std::pair<int, int>, std::vector<std::byte>> tensors_;
  std::map<std::pair<int, int>, std::vector<float>> tensor_gradients_;
};

}  // namespace

bool StepRecord::operator==(const StepRecord& other) const {
  const auto alike = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  return alike(loss, other.loss) && alike(grad_norm, other.grad_norm) && loss_scale == other.loss_scale &&
         skipped == other.skipped;
}

RunRecord train_reference(const ModelSpec& model, const ReferenceOptions& options) {
  return Reference(model, options).run();
}

double median_norm(const ModelSpec& model, ReferenceOptions options) {
  options.max_norm = 0;
  std::vector<double> norms;
  for (const StepRecord& step : train_reference(model, options).steps) norms.push_back(step.grad_norm);
  std::sort(norms.begin(), norms.end());
  return norms[norms.size() / 2];
}

}  // namespace sluice::testing
