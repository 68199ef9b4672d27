// Waits for a device's compute, where no executor does: probes and timing.
#pragma once
#include <condition_variable>
#include <exception>
#include <mutex>

#include "offload/device.h"

namespace sluice {

// The device's sink for as long as it lives; it outlives the device's last operation. One thread.
class DeviceWait final : private CopySink {
 public:
  explicit DeviceWait(Device& device) : device_(device) { device.set_sink(this); }

  // Until all compute that was called for has ended; throws what it ended with.
  void for_compute() {
    std::unique_lock lock(mutex_);
    ended_ = false;
    lock.unlock();
    device_.finish_compute(0);
    lock.lock();
    wake_.wait(lock, [this] { return ended_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void copied(uint64_t, std::exception_ptr error) noexcept override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = std::move(error);
    wake_.notify_one();
  }

  Device& device_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::exception_ptr error_;
};

}  // namespace sluice
