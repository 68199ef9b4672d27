// What other threads call of the executor: the caller of compute, and those that tell ends.
#include <algorithm>
#include <utility>

#include "core/errors.h"
#include "offload/executor.h"

namespace sluice {

Executor::~Executor() {
  {
    std::unique_lock lock(mutex_);
    if (running_) {  // a unit was left in the middle: let what is under way end, start nothing more
      error_ = std::make_exception_ptr(DeviceError("the engine was destroyed in the middle of a step"));
      entered_ = false;
      take_back_released();
      wake();
      caller_wakes_.wait(lock, [this] { return !running_; });
    }
    stop_ = true;
  }
  thread_wakes_.notify_one();
  thread_.join();
}

// Wherever it waits: for the store, or for what other threads tell where that broke.
void Executor::wake() {
  parts_.store->interrupt();
  thread_wakes_.notify_one();
}

// With mutex_ held. Where the executor is awake it looks before it waits: that saves a system call here and two there.
void Executor::tell(Told told) {
  told_.push_back(std::move(told));
  if (std::exchange(asleep_, false)) wake();
}

void Executor::begin(const Program& program, Writes writes, Calls calls) {
  std::lock_guard lock(mutex_);
  SLUICE_CHECK(!running_, "a unit is running");
  SLUICE_CHECK(!store_broke_, "the store's queue broke in a unit before");
  SLUICE_CHECK(std::ranges::all_of(lanes_, &LaneState::is_empty), "hops of the unit before are counted as under way");
  SLUICE_CHECK(static_cast<int>(program.hops().size()) <= parts_.max_hops, "a program longer than planned for");
  program_ = &program;
  writes_ = writes;
  error_ = nullptr;
  abandoned_ = calls == Calls::kNone;
  released_ = kNone;
  entered_ = false;
  running_ = true;
  thread_wakes_.notify_one();
}

void Executor::enter(int hop) {
  std::unique_lock lock(mutex_);
  caller_wakes_.wait(lock, [&] { return released_ == hop || !running_; });
  if (released_ != hop) {
    if (error_) std::rethrow_exception(error_);
    check_failed("released", __FILE__, __LINE__, "a compute hop was entered out of order");
  }
  entered_ = true;
  const DeviceOrder after = released_after_;
  lock.unlock();
  try {
    parts_.device->begin_compute(after);
  } catch (...) {
    lock.lock();
    released_ = kNone;
    entered_ = false;
    lock.unlock();
    ended(hop, std::current_exception());
    throw;
  }
}

void Executor::leave(int hop) {
  {
    std::lock_guard lock(mutex_);
    SLUICE_CHECK(released_ == hop && entered_, "a compute hop was left that was not entered");
    released_ = kNone;
    entered_ = false;
    leaving_ = hop;
  }
  try {
    const uint64_t number = parts_.device->finish_compute(static_cast<uint64_t>(hop));
    std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, kNone) != hop) return;  // it has ended already
    tell({.hop = hop, .what = Told::What::kOnDevice, .number = number});
  } catch (...) {
    ended(hop, std::current_exception());
  }
}

void Executor::abandon() {
  int inside = -1;
  {
    std::lock_guard lock(mutex_);
    if (!running_) return;
    abandoned_ = true;
    if (entered_) inside = released_;
    take_back_released();
  }
  if (inside >= 0) leave(inside);
  wake();
}

const UnitTimes& Executor::finish() {
  std::unique_lock lock(mutex_);
  caller_wakes_.wait(lock, [this] { return !running_; });
  if (error_) std::rethrow_exception(error_);
  return times_;
}

// The interrupt happens under the lock: once the executor has seen this end, the thread that told it touches nothing of
// ours any more, so all may be destroyed.
void Executor::ended(int hop, std::exception_ptr error) noexcept {
  std::lock_guard lock(mutex_);
  if (leaving_ == hop) leaving_ = kNone;
  tell({.hop = hop, .what = Told::What::kEnded, .error = std::move(error)});
}

void Executor::copied(uint64_t tag, std::exception_ptr error) noexcept {
  ended(static_cast<int>(tag), std::move(error));
}

void Executor::name_rows(TraceWriter& to) {
  for (int lane = 0; lane < kLaneCount; ++lane) to.name_row(lane, name_of(static_cast<Lane>(lane)));
}

void Executor::close_trace() {
  std::lock_guard lock(mutex_);
  SLUICE_CHECK(!running_, "a unit is running");
  if (const std::unique_ptr<TraceWriter> trace = std::move(parts_.trace)) trace->close();
}

void Executor::write_trace(TraceWriter& to) const {
  if (program_ == nullptr) return;  // nothing has run yet
  const auto hops = program_->hops();
  std::vector<int> ran;
  for (int hop = 0; hop < static_cast<int>(hops.size()); ++hop) {
    if (end_ns_[hop] != 0) ran.push_back(hop);
  }
  std::ranges::stable_sort(ran, {}, [this](int hop) { return begin_ns_[hop]; });
  for (const int hop : ran) {
    to.event(static_cast<int>(hops[hop].lane()), parts_.work->hop_label(hops[hop]), begin_ns_[hop], end_ns_[hop]);
  }
  to.flush();
}

}  // namespace sluice
