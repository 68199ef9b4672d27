// A thread of a device that brings jobs to their ends in the order of starting and tells the sink. Both twins' lanes.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "core/errors.h"
#include "core/fifo.h"
#include "core/threads.h"
#include "offload/device.h"

namespace sluice {

// Job has a `tag`. start() and next(): one thread at a time. What `work` throws is told as the job's error.
template <class Job>
class DeviceLane {
 public:
  // `passed`: what follows a job that has ended well, once the sink knows of that.
  explicit DeviceLane(std::function<void(const Job&)> work, std::function<void(const Job&)> passed = {})
      : work_(std::move(work)),
        passed_(std::move(passed)),
        thread_(start_thread("a thread for a device's lane", [this] { run(); })) {}
  ~DeviceLane() {  // after the last job's end
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  DeviceLane(DeviceLane&&) = delete;

  void set_sink(CopySink* sink) {
    std::lock_guard lock(mutex_);
    sink_ = sink;
  }
  void check_room() {
    std::lock_guard lock(mutex_);
    SLUICE_CHECK(!jobs_.full(), "too many copies under way in one lane");
  }
  // The next job's number: they are counted from 1.
  uint64_t next() const { return started_ + 1; }
  // Returns the job's number.
  uint64_t start(const Job& job) {
    check_room();
    {
      std::lock_guard lock(mutex_);
      jobs_.push(job);
    }
    wake_.notify_one();
    return ++started_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const Job job = jobs_.front();
      CopySink* sink = sink_;
      lock.unlock();
      std::exception_ptr error;
      try {
        work_(job);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      jobs_.pop();
      lock.unlock();
      const bool ended_well = !error;
      sink->copied(job.tag, std::move(error));
      if (ended_well && passed_) passed_(job);
      lock.lock();
    }
  }

  std::function<void(const Job&)> work_, passed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Fifo<Job> jobs_{Device::kMaxCopies};  // the first is being done
  uint64_t started_ = 0;
  bool stop_ = false;
  CopySink* sink_ = nullptr;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace sluice
