// Work in pieces that take long and know nothing of each other, several of them at once.
#pragma once
#include <cstddef>
#include <functional>

namespace sluice {

// At least 1: others may be at work, or be measured.
int half_of_the_cores();

// work(0) to work(count - 1), in any order, from `threads` threads, or as many of them as can be had; returns when all
// is done. What one of them throws is thrown here, once those under way have ended; no others begin then.
void at_once(size_t count, int threads, const std::function<void(size_t)>& work);

}  // namespace sluice
