// Replaces operator new of the program it is linked into.
#include "tests/fakes/counting_new.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};
thread_local int64_t allocations_of_thread = 0;

void* count_or_null(void* memory) {
  if (memory == nullptr) return nullptr;
  allocations.fetch_add(1);
  ++allocations_of_thread;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t live = live_bytes.fetch_add(bytes) + bytes;
  for (int64_t peak = peak_bytes.load(); live > peak && !peak_bytes.compare_exchange_weak(peak, live);) {
  }
  return memory;
}

void* count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return count_or_null(memory);
}

// Inlined, GCC would see memory of malloc that operator delete is given.
[[gnu::noinline]] void release(void* memory) {
  if (memory == nullptr) return;
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

}  // namespace

namespace sluice {
int64_t heap_allocations() { return allocations.load(); }
int64_t heap_allocations_of_this_thread() { return allocations_of_thread; }
int64_t heap_live_bytes() { return live_bytes.load(); }
int64_t heap_peak_bytes() { return peak_bytes.load(); }
void restart_heap_peak() { peak_bytes.store(live_bytes.load()); }
}  // namespace sluice

void* operator new(size_t bytes) { return count(std::malloc(bytes)); }
void* operator new[](size_t bytes) { return count(std::malloc(bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return count(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}
void* operator new[](size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return count_or_null(std::malloc(bytes)); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return count_or_null(std::malloc(bytes)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }
