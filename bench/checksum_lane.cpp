#include "bench/checksum_lane.h"

#include <utility>

namespace sluice {

ChecksumLane::ChecksumLane(std::function<void(int)> work, std::function<void()> wake, int most_in_flight)
    : work_(std::move(work)), wake_(std::move(wake)) {
  waiting_.reserve(static_cast<size_t>(most_in_flight));
  ended_.reserve(static_cast<size_t>(most_in_flight));
  thread_ = std::thread([this] { run(); });
}

ChecksumLane::~ChecksumLane() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ChecksumLane::start(int number) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(number);
  }
  changed_.notify_one();
}

void ChecksumLane::take_ended(std::vector<int>& into) {
  into.clear();
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  into.swap(ended_);
}

void ChecksumLane::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const int number = waiting_.front();
    waiting_.erase(waiting_.begin());
    lock.unlock();
    std::exception_ptr error;
    try {
      work_(number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
    ended_.push_back(number);
    wake_();
  }
}

}  // namespace sluice
