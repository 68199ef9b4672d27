// What operator new has given out, in programs that are linked with counting_new.cpp. Any thread.
#pragma once
#include <cstdint>

namespace sluice {

int64_t heap_allocations();  // so far, by all threads
int64_t heap_allocations_of_this_thread();
int64_t heap_live_bytes();   // now
int64_t heap_peak_bytes();   // the most there was since the start, or since this:
void restart_heap_peak();

}  // namespace sluice
