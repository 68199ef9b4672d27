// A drive that is as late as it can be with reads, or with writes: a request of that kind is kept back, its bytes where
// they are, until nothing else has happened for a while; then one of them, drawn by chance, is served. What a program
// does not order then comes in the order that it least expects.
#pragma once
#include <cstdint>

#include "swap/io_queue.h"

namespace sluice {

enum class Late : uint8_t { kReads, kWrites };

IoQueueFactory late_drive_factory(Late late, uint64_t seed);

}  // namespace sluice
