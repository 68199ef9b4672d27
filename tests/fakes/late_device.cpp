#include "tests/fakes/late_device.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "core/errors.h"
#include "offload/gradient_kernels.h"

namespace sluice {

constexpr std::chrono::microseconds kSlowWork{50};

LateDevice::LateDevice(int64_t bytes, AdamKernel kernel) : arena_(bytes), kernel_(kernel) {
  std::memset(arena_.at(0), 0xff, static_cast<size_t>(bytes));  // a GPU's memory holds anything at first
  for (const Order order : {Order::kUpload, Order::kDownload, Order::kCompute}) {
    threads_[static_cast<size_t>(order)] = std::thread([this, order] { run(order); });
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

void LateDevice::slow_down(Order order) {
  const std::lock_guard lock(mutex_);
  queue(order).slow = true;
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
  Queue& failing = queue(lane == CopyLane::kUpload ? Order::kUpload : Order::kDownload);
  failing.failing = failing.started + 1;
}

void LateDevice::fail_next_end_of_compute() {
  const std::lock_guard lock(mutex_);
  queue(Order::kCompute).failing = queue(Order::kCompute).started + 1;
}

void LateDevice::tell_late(Order late, Order first) {
  const std::lock_guard lock(mutex_);
  queue(late).may_tell = [this, first, told = queue(first).told] { return queue(first).told > told; };
}

void LateDevice::wait_until_started(const DeviceOrder& counts) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return queue(Order::kUpload).started >= counts.upload && queue(Order::kDownload).started >= counts.download &&
           queue(Order::kCompute).started >= counts.compute;
  });
}

uint64_t LateDevice::put(Order order, Work work) {
  const std::lock_guard lock(mutex_);
  Queue& its = queue(order);
  SLUICE_CHECK(its.waiting.size() < kMaxCopies, "too much work under way in one order");
  its.waiting.push_back(std::move(work));
  changed_.notify_all();
  return ++its.started;
}

bool LateDevice::may_run(const Work& work) const {
  return !held_ && queues_[static_cast<size_t>(Order::kUpload)].ended >= work.after.upload &&
         queues_[static_cast<size_t>(Order::kDownload)].ended >= work.after.download &&
         queues_[static_cast<size_t>(Order::kCompute)].ended >= work.after.compute;
}

void LateDevice::run(Order order) {
  std::unique_lock lock(mutex_);
  Queue& mine = queue(order);
  for (;;) {
    changed_.wait(lock, [&] { return mine.waiting.empty() ? stops_ : may_run(mine.waiting.front()); });
    if (mine.waiting.empty()) return;
    const Work work = std::move(mine.waiting.front());
    mine.waiting.pop_front();
    std::exception_ptr error;
    if (mine.ended + 1 == mine.failing) {
      error = std::make_exception_ptr(
          DeviceError(order == Order::kCompute ? "this compute was to fail" : "this copy was to fail"));
    }
    const bool slow = mine.slow;
    lock.unlock();
    if (slow) std::this_thread::sleep_for(kSlowWork);
    if (!error) {
      for (const auto& step : work.steps) step();
    }
    lock.lock();
    ++mine.ended;
    changed_.notify_all();
    if (const auto may_tell = std::exchange(mine.may_tell, {})) changed_.wait(lock, may_tell);
    lock.unlock();
    sink_->copied(work.tag, std::move(error));  // who is told may be done with it first: nothing of it stays here
    lock.lock();
    ++mine.told;
    changed_.notify_all();
  }
}

uint64_t LateDevice::start(const Copy& copy) {
  return put(copy.lane == CopyLane::kUpload ? Order::kUpload : Order::kDownload,
             {copy.tag, copy.after, {[copy] { std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes)); }}});
}

void LateDevice::copy_now(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void LateDevice::begin_compute(const DeviceOrder& after) {
  if (std::exchange(compute_fails_, false)) throw DeviceError("this compute was to fail");
  after_ = after;
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
  if (roundings_left_ >= 0 && roundings_left_-- == 0) throw DeviceError("this rounding was to fail");
  launch([=] { sluice::round_to(from, to, dtype, elements); });
}

void LateDevice::zero(std::byte* memory, int64_t bytes) {
  launch([=] { std::memset(memory, 0, static_cast<size_t>(bytes)); });
}

void LateDevice::add_number(const double* number, double* sum) {
  launch([=] { *sum += *number; });
}

uint64_t LateDevice::finish_compute(uint64_t tag) {
  if (std::exchange(finish_fails_, false)) {
    called_for_.clear();
    throw DeviceError("this end of compute was to fail");
  }
  return put(Order::kCompute, {tag, std::exchange(after_, {}), std::exchange(called_for_, {})});
}

Finite LateDevice::update(AdamFormat, std::span<const AdamRun> runs) {
  SLUICE_CHECK(kernel_ != nullptr, "this device was made without an optimizer");
  Finite finite = Finite::kYes;
  for (const AdamRun& run : runs) {
    if (kernel_(run.step, run.planes, run.elements) == Finite::kNo) finite = Finite::kNo;
  }
  return finite;
}

}  // namespace sluice
