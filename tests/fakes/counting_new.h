// What operator new has given out, in programs that are linked with counting_new.cpp. Any thread.
#pragma once
#include <cstdint>

namespace sluice {

int64_t heap_allocations();  // so far, by all threads
int64_t heap_live_bytes();   // now

}  // namespace sluice
