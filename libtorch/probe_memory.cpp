#include "libtorch/probe_memory.h"

#include <sys/mman.h>

#include <string>

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
ZeroMemory::~ZeroMemory() { munmap(base_, static_cast<size_t>(bytes_)); }
void ZeroMemory::clear() { madvise(base_, static_cast<size_t>(bytes_), MADV_DONTNEED); }

ProbeMemory::ProbeMemory(DeviceKind device, int64_t bytes) : bytes_(bytes) {
  if (device == DeviceKind::kHost) {
    host_.emplace(bytes);
  } else {
    gpu_ = make_device(device, bytes);
    gpu_->zero(gpu_->memory(), bytes);
  }
}
std::span<std::byte> ProbeMemory::span() const {
  return host_ ? host_->span() : std::span(gpu_->memory(), static_cast<size_t>(bytes_));
}
void* ProbeMemory::stream() const { return host_ ? nullptr : gpu_->compute_stream(); }
void ProbeMemory::give_back() {
  if (host_) host_->clear();
}

}  // namespace sluice
