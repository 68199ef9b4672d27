#include "tests/fakes/late_device.h"

#include <cstring>
#include <utility>

#include "core/errors.h"
#include "offload/gradient_kernels.h"

namespace sluice {

LateDevice::LateDevice(int64_t bytes) : arena_(bytes) {
  for (const Queue queue : {kUpload, kDownload, kCompute}) {
    threads_[queue] = std::thread([this, queue] { run(queue); });
  }
}

LateDevice::~LateDevice() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    held_ = false;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LateDevice::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void LateDevice::let_go() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void LateDevice::fail_next(CopyLane lane) {
  const std::lock_guard lock(mutex_);
  Order& order = orders_[lane == CopyLane::kUpload ? kUpload : kDownload];
  order.failing = order.started + 1;
}

void LateDevice::wait_until_started(const DeviceOrder& counts) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return orders_[kUpload].started >= counts.upload && orders_[kDownload].started >= counts.download &&
           orders_[kCompute].started >= counts.compute;
  });
}

uint64_t LateDevice::put(Queue queue, Work work) {
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(orders_[queue].waiting.size() < kMaxCopies, "too much work under way in one order");
  orders_[queue].waiting.push_back(std::move(work));
  changed_.notify_all();
  return ++orders_[queue].started;
}

bool LateDevice::may_run(const Work& work) const {
  return !held_ && orders_[kUpload].ended >= work.after.upload && orders_[kDownload].ended >= work.after.download &&
         orders_[kCompute].ended >= work.after.compute;
}

void LateDevice::run(Queue queue) {
  std::unique_lock lock(mutex_);
  Order& mine = orders_[queue];
  for (;;) {
    changed_.wait(lock, [&] { return mine.waiting.empty() ? stops_ : may_run(mine.waiting.front()); });
    if (mine.waiting.empty()) return;
    const Work work = std::move(mine.waiting.front());
    mine.waiting.pop_front();
    std::exception_ptr error;
    if (mine.ended + 1 == mine.failing) error = std::make_exception_ptr(DeviceError("this copy was to fail"));
    lock.unlock();
    if (!error) {
      for (const auto& step : work.steps) step();
    }
    lock.lock();
    ++mine.ended;
    changed_.notify_all();
    lock.unlock();
    sink_->copied(work.tag, std::move(error));  // who is told may be done with it first: nothing of it stays here
    lock.lock();
  }
}

uint64_t LateDevice::start(const Copy& copy) {
  return put(copy.lane == CopyLane::kUpload ? kUpload : kDownload,
             {copy.tag, copy.after, {[copy] { std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes)); }}});
}

void LateDevice::copy_now(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void LateDevice::add_gradient(float* open, const GradientView& gradient, Contribution which) {
  launch([=] { sluice::add_gradient(open, gradient, which); });
}

void LateDevice::close_gradient(const Closing& closing, double* norm_part) {
  launch([norm_part, late = closing, kept = std::vector(closing.pieces.begin(), closing.pieces.end())]() mutable {
    late.pieces = kept;
    *norm_part = sluice::close_gradient(late);
  });
}

void LateDevice::round_to(const float* from, std::byte* to, DType dtype, int64_t elements) {
  launch([=] { sluice::round_to(from, to, dtype, elements); });
}

void LateDevice::zero(std::byte* memory, int64_t bytes) {
  launch([=] { std::memset(memory, 0, static_cast<size_t>(bytes)); });
}

void LateDevice::add_number(const double* number, double* sum) {
  launch([=] { *sum += *number; });
}

uint64_t LateDevice::finish_compute(uint64_t tag) {
  return put(kCompute, {tag, std::exchange(after_, {}), std::exchange(called_for_, {})});
}

Finite LateDevice::update(AdamFormat, std::span<const AdamRun>) {
  check_failed("update", __FILE__, __LINE__, "a late device has no optimizer");
}

}  // namespace sluice
