// A drive in memory that remembers its traffic, and the states that a power cut can leave of it: what was written
// before the last completed sync is there; of each later write, any of its 512-byte sectors.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "swap/io_queue.h"

namespace sluice {

// The content of a file, 4096 bytes each; what was never written is zero.
using Image = std::map<int64_t, std::array<std::byte, 4096>>;

struct TrafficEvent {
  IoOp op = IoOp::kWrite;  // kWrite or kSync
  int64_t offset = 0;
  std::vector<std::byte> bytes{};
};

struct ImageDrive {
  Image image;
  std::vector<TrafficEvent> events;
};

// Queues on one drive in memory. Transfers of all queues of a factory meet the same image; requests must be aligned to
// 512 bytes. Everything completes at once, so poll(kUntilOne) never blocks.
IoQueueFactory image_queue_factory(std::shared_ptr<ImageDrive> drive);

// Which sectors of the writes that are not yet durable survive.
enum class Survival : uint8_t { kNone, kAll, kWholeWrites, kSectors };  // the last two: any of them, at random
void apply(Image& image, const TrafficEvent& write, Survival survival, std::mt19937_64& random);

}  // namespace sluice
