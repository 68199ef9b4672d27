#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <string>

#include "core/errors.h"
#include "libtorch/compute_scope.h"
#include "libtorch/workspace.h"

namespace sluice {
namespace {

// The workspace of the visit that this thread runs.
thread_local Workspace* visiting = nullptr;
// What answered before ours was installed.
c10::Allocator* original = nullptr;

void release_by_address(void* address) {
  if (address != nullptr && !Workspace::release(address)) original->raw_deallocate(address);
}

class VisitAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* address = nullptr;
    if (bytes > 0) {
      const bool planned = visiting != nullptr && current_compute_stream() == nullptr;
      address = planned ? visiting->take(static_cast<int64_t>(bytes)) : original->raw_allocate(bytes);
    }
    return {address, address, &release_by_address, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_by_address; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static VisitAllocator allocator;
    original = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&allocator, 1);
  });
}

}  // namespace

WorkspaceScope::WorkspaceScope(Workspace& workspace) : before_(visiting) {
  install();
  visiting = &workspace;
}
WorkspaceScope::~WorkspaceScope() { visiting = before_; }

std::byte* take_for_visit(int64_t bytes) {
  if (visiting != nullptr) return visiting->take(bytes);
  throw DeviceError("LibTorch wants " + std::to_string(bytes) +
                    " bytes of the GPU outside of a visit, where none are planned for it");
}
void give_back_of_visit(void* address) noexcept {
  SLUICE_CHECK(Workspace::release(address), "LibTorch gave back memory of the GPU that is no workspace's");
}

}  // namespace sluice
