#include "libtorch/zero_turn.h"

#include <sys/mman.h>

#include <string>
#include <utility>

#include "core/errors.h"

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

std::byte* ZeroTurn::take(int64_t bytes) { return memory_.emplace_back(bytes).span().data(); }

ZeroTurn::ZeroTurn(const ModelSpec& model, const Geometry& geometry, int visit, DType weights, Pass pass,
                   std::span<std::byte> graph)
    : pass_(pass), graph_(graph) {
  const VisitSpec& spec = model.visits[static_cast<size_t>(visit)];
  for (const int partition : spec.partitions) {
    for (const Parameter& parameter : geometry.parameters_of(partition)) {
      weights_.push_back({&parameter, take(parameter.elements * bytes_of(weights)), weights});
    }
  }
  const auto add = [&](std::vector<TensorView>& to, int tensor) {
    const TensorSpec& boundary = model.tensors[static_cast<size_t>(tensor)];
    to.push_back({take(boundary.bytes()), boundary.elements, boundary.dtype});
  };
  for (const int tensor : spec.takes) add(inputs_, tensor);
  for (const int tensor : spec.gives) {
    if (pass != Pass::kBackward) add(outputs_, tensor);
    if (pass == Pass::kBackward) add(output_gradients_, tensor);
  }
  if (pass == Pass::kBackward) input_gradients_ = inputs_;
}

}  // namespace sluice
