#include "tests/fakes/crash_image.h"

#include <algorithm>
#include <cstring>

#include "core/errors.h"

namespace sluice {
namespace {

constexpr int64_t kSectorBytes = 512;
constexpr int64_t kImageBlockBytes = 4096;

// Both ways, a sector at a time.
template <typename Move>
void for_each_sector(int64_t offset, int64_t bytes, Move move) {
  SLUICE_CHECK(offset % kSectorBytes == 0 && bytes % kSectorBytes == 0, "the drive in memory has sectors of 512 bytes");
  for (int64_t at = 0; at < bytes; at += kSectorBytes) {
    move((offset + at) / kImageBlockBytes, (offset + at) % kImageBlockBytes, at);
  }
}

class ImageQueue final : public IoQueue {
 public:
  ImageQueue(int depth, std::shared_ptr<ImageDrive> drive) : IoQueue(depth), drive_(std::move(drive)) {}
  void interrupt() override {}
  std::string describe() const override { return "a drive in memory"; }

 private:
  void do_submit(const IoRequest& request) override {
    const auto offset = static_cast<int64_t>(request.offset);
    const int64_t bytes = request.op == IoOp::kSync ? 0 : request.bytes;
    if (request.op == IoOp::kRead) {
      for_each_sector(offset, bytes, [&](int64_t block, int64_t within, int64_t at) {
        const auto found = drive_->image.find(block);
        if (found == drive_->image.end()) {
          std::memset(request.memory + at, 0, kSectorBytes);
        } else {
          std::memcpy(request.memory + at, found->second.data() + within, kSectorBytes);
        }
      });
    } else {
      TrafficEvent event{.op = request.op, .offset = offset};
      if (bytes > 0) event.bytes.assign(request.memory, request.memory + bytes);
      std::mt19937_64 unused;
      apply(drive_->image, event, Survival::kAll, unused);
      drive_->events.push_back(std::move(event));
    }
    done_.push_back({.tag = request.tag, .result = bytes});
  }
  void do_flush() override {}
  size_t do_poll(std::span<IoCompletion> completions, Wait) override {
    const size_t count = std::min(completions.size(), done_.size());
    std::copy_n(done_.begin(), count, completions.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<int64_t>(count));
    return count;
  }

  std::shared_ptr<ImageDrive> drive_;
  std::vector<IoCompletion> done_;
};

}  // namespace

void apply(Image& image, const TrafficEvent& write, Survival survival, std::mt19937_64& random) {
  if (survival == Survival::kNone || write.op == IoOp::kSync) return;
  if (survival == Survival::kWholeWrites && random() % 2 == 0) return;
  for_each_sector(write.offset, static_cast<int64_t>(write.bytes.size()),
                  [&](int64_t block, int64_t within, int64_t at) {
                    if (survival == Survival::kSectors && random() % 2 == 0) return;
                    std::memcpy(image[block].data() + within, write.bytes.data() + at, kSectorBytes);
                  });
}

IoQueueFactory image_queue_factory(std::shared_ptr<ImageDrive> drive) {
  return [drive = std::move(drive)](const IoQueueOptions& options) -> std::unique_ptr<IoQueue> {
    return std::make_unique<ImageQueue>(options.depth, drive);
  };
}

}  // namespace sluice
