#include "libtorch/visit_memory.h"

namespace sluice {

VisitMemory::VisitMemory(std::span<std::byte> memory, void* stream) : workspace_(memory), stream_(stream) {
  if (stream_ == nullptr) return;
  const VisitScope scope(*this);
  try {
    cuda_module().take_blas_memory();
  } catch (...) {  // some of it may have been taken
    cuda_module().give_back_blas_memory(stream_);
    throw;
  }
}

VisitMemory::~VisitMemory() {
  if (stream_ != nullptr) cuda_module().give_back_blas_memory(stream_);
}

}  // namespace sluice
