// A turn of a visit on values that do not matter: what measuring the workspace needs. Contributions go nowhere.
// No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "libtorch/visit_turn.h"
#include "offload/device.h"

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

// Memory of zeros where a device's visits compute: the host's is resident only where it is written, a GPU's is taken.
class ProbeMemory {
 public:
  ProbeMemory(DeviceKind device, int64_t bytes);  // kHost or kCuda. Throws ConfigError, DeviceError

  std::span<std::byte> span() const;
  void* stream() const;            // Device::compute_stream()
  std::byte* take(int64_t bytes);  // the next of the span's; kDeviceAlignmentBytes
  void take_back();                // all of it; on the host it is zero and not resident again

 private:
  DeviceKind kind_;
  int64_t bytes_, taken_ = 0;
  std::optional<ZeroMemory> host_;
  std::unique_ptr<Device> gpu_;
};

class ZeroTurn final : public VisitTurn {
 public:
  // Of visit `visit` of a model, whose geometry is `geometry`.
  struct Of {
    const ModelSpec& model;  // outlives it, as the geometry does
    const Geometry& geometry;
    int visit = 0;
    DType weights = DType::kFp32;
  };
  static int64_t bytes(const Of& of);  // that it takes, at most

  // `memory` outlives it. `graph` is the turn's graph(), and outlives it.
  ZeroTurn(const Of& of, Pass pass, ProbeMemory& memory, std::span<std::byte> graph = {});

  Pass pass() const override { return pass_; }
  std::span<const WeightView> weights() const override { return weights_; }
  std::span<const TensorView> inputs() const override { return inputs_; }
  std::span<const TensorView> outputs() const override { return outputs_; }
  std::span<const TensorView> output_gradients() const override { return output_gradients_; }
  std::span<const TensorView> input_gradients() const override { return input_gradients_; }
  std::span<std::byte> graph() const override { return graph_; }
  void contribute(int, const std::byte*, DType) override {}
  void contribute_part(int, int64_t, const GradientView&) override {}
  std::span<float> open_gradient(int weight) override;
  double loss_scale() const override { return 1; }
  void report_loss(const double*) override {}

 private:
  Pass pass_;
  ProbeMemory& memory_;
  std::span<std::byte> graph_;
  std::vector<WeightView> weights_;
  std::vector<TensorView> inputs_, outputs_, output_gradients_, input_gradients_;
};

}  // namespace sluice
