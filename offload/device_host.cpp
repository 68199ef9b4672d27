// The host twin of the device: an arena of its own, capped by the device budget, and one copy thread a lane. Compute
// runs on the caller's thread, so it has ended when a call returns.
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "core/arena.h"
#include "core/errors.h"
#include "core/ieee_arithmetic.h"
#include "offload/close_launches.h"
#include "offload/device.h"
#include "offload/device_lane.h"

namespace sluice {
namespace {

// A GPU's memory holds anything at first. Under a sanitizer so does this: nobody must rely on zeros. In every
// floating-point type these are NaNs.
void poison([[maybe_unused]] const Arena& arena) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (arena.bytes() > 0) std::memset(arena.at(0), 0xff, static_cast<size_t>(arena.bytes()));
#endif
}

void run_copy(const Copy& copy) { std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes)); }

// How many copies of each lane have ended: copies and compute wait for those before them.
class EndedCopies {
 public:
  void add(CopyLane lane) {
    const std::lock_guard lock(mutex_);
    ++ended_[static_cast<size_t>(lane)];
    changed_.notify_all();
  }
  void wait_for(const DeviceOrder& order) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return of(CopyLane::kUpload) >= order.upload && of(CopyLane::kDownload) >= order.download; });
  }

 private:
  uint64_t of(CopyLane lane) const { return ended_[static_cast<size_t>(lane)]; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<uint64_t, 2> ended_{};
};

class DeviceHost final : public Device {
 public:
  DeviceHost(int64_t bytes, AdamKernel kernel) : arena_(bytes), kernel_(kernel) { poison(arena_); }

  std::byte* memory() const override { return arena_.at(0); }
  int64_t bytes() const override { return arena_.bytes(); }
  std::string describe() const override { return "device_host: host memory plays the device"; }
  void* compute_stream() const override { return nullptr; }

  void register_host(std::span<std::byte>) override {}
  uint64_t start(const Copy& copy) override {
    return (copy.lane == CopyLane::kUpload ? upload_ : download_).start(copy);
  }
  void set_sink(CopySink* sink) override {
    sink_ = sink;
    upload_.set_sink(sink);
    download_.set_sink(sink);
  }
  void copy_now(std::byte* to, const std::byte* from, int64_t bytes) override {
    run_copy({.to = to, .from = from, .bytes = bytes});
  }

  void begin_compute(const DeviceOrder& after) override { ended_.wait_for(after); }
  // The arithmetic is the device's, whatever that of the caller is.
  void add_gradient(float* open, const GradientView& gradient, Contribution which) override {
    const IeeeArithmetic arithmetic;
    sluice::add_gradient(open, gradient, which);
  }
  void close_gradient(const Closing& closing, double* norm_part) override {
    const IeeeArithmetic arithmetic;
    CloseLaunches{closing};  // checks what a GPU asks for
    *norm_part = sluice::close_gradient(closing);
  }
  void round_to(const float* from, std::byte* to, DType dtype, int64_t elements) override {
    const IeeeArithmetic arithmetic;
    sluice::round_to(from, to, dtype, elements);
  }
  void zero(std::byte* memory, int64_t bytes) override { std::memset(memory, 0, static_cast<size_t>(bytes)); }
  void add_number(const double* number, double* sum) override {
    const IeeeArithmetic arithmetic;
    *sum += *number;
  }
  uint64_t finish_compute(uint64_t tag) override {
    sink_->copied(tag, nullptr);
    return ++finished_;
  }
  Finite update(AdamFormat, std::span<const AdamRun> runs) override {
    SLUICE_CHECK(kernel_ != nullptr, "this device was made without an optimizer");
    const IeeeArithmetic arithmetic;
    Finite finite = Finite::kYes;
    for (const AdamRun& run : runs) {
      if (kernel_(run.step, run.planes, run.elements) == Finite::kNo) finite = Finite::kNo;
    }
    return finite;
  }

 private:
  void copy_in_order(const Copy& copy) {
    ended_.wait_for(copy.after);
    run_copy(copy);
  }
  // Once the sink knows of the copy: it hears of what has waited for it after that.
  void let_others_pass(const Copy& copy) { ended_.add(copy.lane); }

  Arena arena_;
  AdamKernel kernel_;
  CopySink* sink_ = nullptr;
  EndedCopies ended_;
  uint64_t finished_ = 0;
  // Last: their threads use all of the above.
  struct Lane : DeviceLane<Copy> {
    explicit Lane(DeviceHost& device)
        : DeviceLane([&device](const Copy& copy) { device.copy_in_order(copy); },
                     [&device](const Copy& copy) { device.let_others_pass(copy); }) {}
  };
  Lane upload_{*this}, download_{*this};
};

}  // namespace

std::unique_ptr<Device> make_device_host(int64_t bytes, AdamKernel kernel) {
  return std::make_unique<DeviceHost>(bytes, kernel);
}

}  // namespace sluice
