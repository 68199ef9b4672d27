// Counts calls of operator new in the test program (counting_new.cpp replaces it).
#pragma once
#include <cstdint>

namespace sluice {
int64_t allocations_of_this_thread();
}  // namespace sluice
