// A visit's turn as models see it: the engine's Use, or a stand-in that measures or tests. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/engine.h"

namespace sluice {

// The contract of engine.h's Use, whose member functions these are.
class VisitTurn {
 public:
  virtual ~VisitTurn() = default;
  virtual Pass pass() const = 0;
  virtual std::span<const WeightView> weights() const = 0;
  virtual std::span<const TensorView> inputs() const = 0;
  virtual std::span<const TensorView> outputs() const = 0;
  virtual std::span<const TensorView> output_gradients() const = 0;
  virtual std::span<const TensorView> input_gradients() const = 0;
  virtual std::span<std::byte> graph() const = 0;
  virtual void contribute(int weight, const std::byte* gradient, DType dtype) = 0;
  // Adds to the elements of weight's open gradient from `first` on.
  virtual void contribute_part(int weight, int64_t first, const GradientView& part) = 0;
  // weight's open gradient itself, zero where nothing has been contributed.
  virtual std::span<float> open_gradient(int weight) = 0;
  virtual double loss_scale() const = 0;
  virtual void report_loss(const double* loss) = 0;
};

// `use` must outlive it.
class UseTurn final : public VisitTurn {
 public:
  explicit UseTurn(Use& use) : use_(use) {}
  Pass pass() const override { return use_.pass(); }
  std::span<const WeightView> weights() const override { return use_.weights(); }
  std::span<const TensorView> inputs() const override { return use_.inputs(); }
  std::span<const TensorView> outputs() const override { return use_.outputs(); }
  std::span<const TensorView> output_gradients() const override { return use_.output_gradients(); }
  std::span<const TensorView> input_gradients() const override { return use_.input_gradients(); }
  std::span<std::byte> graph() const override { return use_.graph(); }
  void contribute(int weight, const std::byte* gradient, DType dtype) override {
    use_.contribute(weight, gradient, dtype);
  }
  void contribute_part(int weight, int64_t first, const GradientView& part) override {
    use_.contribute_part(weight, first, part);
  }
  std::span<float> open_gradient(int weight) override { return use_.open_gradient(weight); }
  double loss_scale() const override { return use_.loss_scale(); }
  void report_loss(const double* loss) override { use_.report_loss(loss); }

 private:
  Use& use_;
};

}  // namespace sluice
