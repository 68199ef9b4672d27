#include "libtorch/zero_turn.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "engine/plan.h"

namespace sluice {

ZeroMemory::ZeroMemory(int64_t bytes) : bytes_(bytes) {
  void* const mapping = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw ConfigError("no address space for " + std::to_string(bytes) +
                      " bytes while measuring the workspace: raise the limit (ulimit -v)");
  }
  // Reads of untouched pages share one page of zeros; huge pages would be resident whole.
  madvise(mapping, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
  base_ = static_cast<std::byte*>(mapping);
}
ZeroMemory::~ZeroMemory() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}
ZeroMemory::ZeroMemory(ZeroMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

ProbeMemory::ProbeMemory(DeviceKind device, int64_t bytes) : kind_(device), bytes_(bytes) {
  if (kind_ == DeviceKind::kHost) {
    host_.emplace(bytes);
  } else {
    gpu_ = make_device(kind_, bytes);
    gpu_->zero(gpu_->memory(), bytes);
  }
}
std::span<std::byte> ProbeMemory::span() const {
  return host_ ? host_->span() : std::span(gpu_->memory(), static_cast<size_t>(bytes_));
}
void* ProbeMemory::stream() const { return host_ ? nullptr : gpu_->compute_stream(); }

std::byte* ProbeMemory::take(int64_t bytes) {
  SLUICE_CHECK(taken_ + bytes <= bytes_, "more memory was taken for a probe than it has");
  std::byte* const at = span().data() + taken_;
  taken_ += round_up(bytes, kDeviceAlignmentBytes);
  return at;
}
void ProbeMemory::take_back() {
  taken_ = 0;
  if (host_) host_.emplace(bytes_);
}

int64_t ZeroTurn::bytes(const Of& of) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  int64_t bytes = 0;
  for (const int partition : spec.partitions) {
    for (const Parameter& parameter : of.geometry.parameters_of(partition)) {
      bytes += round_up(parameter.elements * (bytes_of(of.weights) + 4), kDeviceAlignmentBytes) + kDeviceAlignmentBytes;
    }
  }
  for (const auto* tensors : {&spec.takes, &spec.gives}) {
    for (const int t : *tensors) {
      bytes += round_up(of.model.tensors[static_cast<size_t>(t)].bytes(), kDeviceAlignmentBytes);
    }
  }
  return bytes;
}

ZeroTurn::ZeroTurn(const Of& of, Pass pass, ProbeMemory& memory, std::span<std::byte> graph)
    : pass_(pass), memory_(memory), graph_(graph) {
  const VisitSpec& spec = of.model.visits[static_cast<size_t>(of.visit)];
  for (const int partition : spec.partitions) {
    for (const Parameter& parameter : of.geometry.parameters_of(partition)) {
      weights_.push_back({&parameter, memory.take(parameter.elements * bytes_of(of.weights)), of.weights});
    }
  }
  const auto add = [&](std::vector<TensorView>& to, int tensor) {
    const TensorSpec& boundary = of.model.tensors[static_cast<size_t>(tensor)];
    to.push_back({memory.take(boundary.bytes()), boundary.elements, boundary.dtype});
  };
  for (const int tensor : spec.takes) add(inputs_, tensor);
  for (const int tensor : spec.gives) {
    if (pass != Pass::kBackward) add(outputs_, tensor);
    if (pass == Pass::kBackward) add(output_gradients_, tensor);
  }
  if (pass == Pass::kBackward) input_gradients_ = inputs_;
}

std::span<float> ZeroTurn::open_gradient(int weight) {
  const int64_t elements = weights_[static_cast<size_t>(weight)].parameter->elements;
  return {reinterpret_cast<float*>(memory_.take(elements * 4)), static_cast<size_t>(elements)};
}

}  // namespace sluice
