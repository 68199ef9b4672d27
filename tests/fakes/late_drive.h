// A drive that is as late as it can be with reads, or with writes: a request of that kind is kept back, its bytes where
// they are, until nothing else has happened for a while; then one of them, drawn by chance, is served. What a program
// does not order then comes in the order that it least expects.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "swap/io_queue.h"

namespace sluice {

enum class Late : uint8_t { kReads, kWrites };

// `most_kept_back`: becomes how many requests were kept back at once; one alone has nothing to come out of order with.
IoQueueFactory late_drive_factory(Late late, uint64_t seed,
                                  std::shared_ptr<std::atomic<size_t>> most_kept_back = nullptr);

}  // namespace sluice
