// The host twin of the device: an arena of its own, capped by the device budget, and one copy thread a lane.
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "core/arena.h"
#include "core/errors.h"
#include "offload/device.h"

namespace sluice {
namespace {

// One lane's thread: copies in the order of starting.
class CopyThread {
 public:
  CopyThread() : thread_([this] { run(); }) {}
  ~CopyThread() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void set_sink(CopySink* sink) {
    std::lock_guard lock(mutex_);
    sink_ = sink;
  }
  void start(const Copy& copy) {
    {
      std::lock_guard lock(mutex_);
      SLUICE_CHECK(count_ < Device::kMaxCopies, "too many copies under way in one lane");
      ring_[(first_ + count_++) % Device::kMaxCopies] = copy;
    }
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || count_ > 0; });
      if (count_ == 0) return;
      const Copy copy = ring_[first_];
      CopySink* sink = sink_;
      lock.unlock();
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      lock.lock();
      first_ = (first_ + 1) % Device::kMaxCopies;
      --count_;
      lock.unlock();
      sink->copied(copy.tag, nullptr);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::array<Copy, Device::kMaxCopies> ring_;
  int first_ = 0, count_ = 0;
  bool stop_ = false;
  CopySink* sink_ = nullptr;
  std::thread thread_;  // last: it uses all of the above
};

class DeviceHost final : public Device {
 public:
  explicit DeviceHost(int64_t bytes) : arena_(bytes) {}

  std::byte* memory() const override { return arena_.at(0); }
  int64_t bytes() const override { return arena_.bytes(); }
  std::string describe() const override { return "device_host: host memory plays the device"; }

  void start(const Copy& copy) override { (copy.lane == CopyLane::kUpload ? upload_ : download_).start(copy); }
  void set_sink(CopySink* sink) override {
    upload_.set_sink(sink);
    download_.set_sink(sink);
  }

  void add_gradient(float* open, const std::byte* gradient, DType dtype, int64_t elements,
                    Contribution which) override {
    sluice::add_gradient(open, gradient, dtype, elements, which);
  }
  double close_gradient(const float* open, float scale, DType dtype, std::span<const ClosedPiece> pieces) override {
    return sluice::close_gradient(open, scale, dtype, pieces);
  }
  void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) override {
    sluice::round_to(from, to, dtype, elements);
  }
  void zero(std::byte* memory, int64_t bytes) override { std::memset(memory, 0, static_cast<size_t>(bytes)); }

 private:
  Arena arena_;
  CopyThread upload_, download_;
};

}  // namespace

std::unique_ptr<Device> make_device_host(int64_t bytes) { return std::make_unique<DeviceHost>(bytes); }

}  // namespace sluice
