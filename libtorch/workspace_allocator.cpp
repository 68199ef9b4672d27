#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>

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
      address = visiting != nullptr ? visiting->take(static_cast<int64_t>(bytes)) : original->raw_allocate(bytes);
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

}  // namespace sluice
