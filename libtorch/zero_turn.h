// A turn of a visit on values that are all zero: what measuring the workspace needs. Contributions go nowhere.
// No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "libtorch/visit_turn.h"

namespace sluice {

// Anonymous memory that is resident only where it has been written.
class ZeroMemory {
 public:
  explicit ZeroMemory(int64_t bytes);  // throws ConfigError where the system refuses
  ~ZeroMemory();
  ZeroMemory(ZeroMemory&& other) noexcept;
  ZeroMemory& operator=(ZeroMemory&&) = delete;
  std::span<std::byte> span() const { return {base_, static_cast<size_t>(bytes_)}; }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

class ZeroTurn final : public VisitTurn {
 public:
  // Visit `visit` of `model`, whose geometry is `geometry`; both outlive it.
  // `graph` is the turn's graph(), and outlives it.
  ZeroTurn(const ModelSpec& model, const Geometry& geometry, int visit, DType weights, Pass pass,
           std::span<std::byte> graph = {});

  Pass pass() const override { return pass_; }
  std::span<const WeightView> weights() const override { return weights_; }
  std::span<const TensorView> inputs() const override { return inputs_; }
  std::span<const TensorView> outputs() const override { return outputs_; }
  std::span<const TensorView> output_gradients() const override { return output_gradients_; }
  std::span<const TensorView> input_gradients() const override { return input_gradients_; }
  std::span<std::byte> graph() const override { return graph_; }
  void contribute(int, const std::byte*, DType) override {}
  void contribute_part(int, int64_t, const std::byte*, int64_t, DType) override {}
  double loss_scale() const override { return 1; }
  void report_loss(double) override {}

 private:
  std::byte* take(int64_t bytes);

  Pass pass_;
  std::span<std::byte> graph_;
  std::vector<ZeroMemory> memory_;
  std::vector<WeightView> weights_;
  std::vector<TensorView> inputs_, outputs_, output_gradients_, input_gradients_;
};

}  // namespace sluice
