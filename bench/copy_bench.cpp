// Upload and download of device_host against plain memcpy over the same memory, one lane at a time and both at once.
//   copy_bench [BYTES_OF_A_COPY]
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "bench/report.h"
#include "core/arena.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "offload/device.h"

namespace {

using namespace sluice;

constexpr int64_t kMemoryBytes = 256 * kMiB;  // well beyond the caches; the first half up, the second half down
constexpr int kPasses = 25;
constexpr int kInFlight = 4;

// Counts the copies that have ended in each lane.
class Counter final : public CopySink {
 public:
  void copied(uint64_t tag, std::exception_ptr error) noexcept override {
    if (error) std::abort();
    const std::lock_guard lock(mutex_);
    ++ended_[tag];
    changed_.notify_one();
  }
  void wait_for(uint64_t tag, int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_[tag] >= count; });
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    ended_[0] = ended_[1] = 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t ended_[2] = {};
};

class Bench {
 public:
  explicit Bench(int64_t copy_bytes)
      : copy_bytes_(copy_bytes), host_(kMemoryBytes), device_(make_device_host(kMemoryBytes)) {
    device_->set_sink(&counter_);
  }

  // kInFlight copies under way in each of `lanes`; returns when all have ended.
  void run_lanes(std::initializer_list<CopyLane> lanes) {
    counter_.reset();
    const int64_t copies = kMemoryBytes / 2 / copy_bytes_;
    for (int64_t i = 0; i < copies + kInFlight; ++i) {
      for (const CopyLane lane : lanes) {
        if (i >= kInFlight) counter_.wait_for(static_cast<uint64_t>(lane), i - kInFlight + 1);
        if (i < copies) device_->start(copy_of(lane, i));
      }
    }
  }
  void run_memcpy(CopyLane lane) {
    for (int64_t i = 0; i < kMemoryBytes / 2 / copy_bytes_; ++i) {
      const Copy copy = copy_of(lane, i);
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
  }

 private:
  Copy copy_of(CopyLane lane, int64_t i) const {
    const bool up = lane == CopyLane::kUpload;
    const int64_t offset = i * copy_bytes_ + (up ? 0 : kMemoryBytes / 2);
    std::byte* const device = device_->memory() + offset;
    std::byte* const host = host_.at(offset);
    return {.lane = lane,
            .to = up ? device : host,
            .from = up ? host : device,
            .bytes = copy_bytes_,
            .tag = static_cast<uint64_t>(lane)};
  }

  int64_t copy_bytes_;
  Arena host_;
  Counter counter_;
  std::unique_ptr<Device> device_;
};

void run(int64_t copy_bytes) {
  Bench bench(copy_bytes);
  Rate upload, download, both, memcpy_one, memcpy_two;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t half = kMemoryBytes / 2 / copy_bytes * copy_bytes;
    memcpy_one.measure(half, [&] { bench.run_memcpy(CopyLane::kUpload); });
    upload.measure(half, [&] { bench.run_lanes({CopyLane::kUpload}); });
    download.measure(half, [&] { bench.run_lanes({CopyLane::kDownload}); });
    memcpy_two.measure(2 * half, [&] {
      std::thread other([&] { bench.run_memcpy(CopyLane::kDownload); });
      bench.run_memcpy(CopyLane::kUpload);
      other.join();
    });
    both.measure(2 * half, [&] { bench.run_lanes({CopyLane::kUpload, CopyLane::kDownload}); });
  }
  const std::string what = fmt::format("device_host, copies of {}", format_bytes(copy_bytes));
  print({"upload", what, "memcpy, one thread", upload.gb_per_s(), memcpy_one.gb_per_s()});
  print({"download", what, "memcpy, one thread", download.gb_per_s(), memcpy_one.gb_per_s()});
  print({"upload_and_download", what, "memcpy, two threads", both.gb_per_s(), memcpy_two.gb_per_s()});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? parse_bytes(argv[1]) : 4 * kMiB);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "copy_bench: {}\n", error.what());
    return 1;
  }
}
