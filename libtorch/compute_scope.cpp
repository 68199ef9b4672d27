#include "libtorch/compute_scope.h"

#include <utility>

#include "core/vector_registers.h"

namespace sluice {
namespace {

thread_local void* current = nullptr;

}  // namespace

ComputeScope::ComputeScope(void* stream)
    : before_(current), scope_(stream == nullptr ? nullptr : cuda_module().compute_on(stream)) {
  current = stream;
}
ComputeScope::~ComputeScope() {
  current = before_;
  release_upper_halves();
}

void* current_compute_stream() { return current; }

}  // namespace sluice
