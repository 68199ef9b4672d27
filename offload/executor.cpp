#include "offload/executor.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/errors.h"

namespace sluice {
namespace {

// Records and copies in flight at once, per lane: enough to keep a drive's queue full, few enough that list order still
// says what comes first.
constexpr int kTransfersInFlight = 8;
constexpr int kCopiesInFlight = 4;

}  // namespace

int in_flight_limit(Lane lane, int update_hops) {
  switch (lane) {
    case Lane::kRead:
    case Lane::kWrite:
      return kTransfersInFlight;
    case Lane::kUpload:
    case Lane::kDownload:
      return kCopiesInFlight;
    case Lane::kUpdate:
      return update_hops;
    case Lane::kCompute:
      return 1;
  }
  return 1;
}

Executor::Executor(Parts parts) : parts_(std::move(parts)) {
  waiting_.reserve(parts_.max_hops);
  // Every hop ends once, and only so many are under way at once.
  const size_t most_ends = 2 * (kTransfersInFlight + kCopiesInFlight) + parts_.update_hops + 2;
  ends_.reserve(most_ends);
  taken_.reserve(most_ends);
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane].limit = in_flight_limit(static_cast<Lane>(lane), parts_.update_hops);
  }
  begin_ns_.reserve(parts_.max_hops);
  end_ns_.reserve(parts_.max_hops);
  if (parts_.trace) name_rows(*parts_.trace);
  parts_.device->set_sink(this);
  thread_ = std::thread([this] { run(); });
}

Executor::~Executor() {
  {
    std::unique_lock lock(mutex_);
    if (running_) {  // a unit was left in the middle: let what is under way end, start nothing more
      error_ = std::make_exception_ptr(DeviceError("the engine was destroyed in the middle of a step"));
      entered_ = false;
      take_back_released();
      parts_.store->interrupt();
      caller_wakes_.wait(lock, [this] { return !running_; });
    }
    stop_ = true;
  }
  thread_wakes_.notify_one();
  thread_.join();
}

void Executor::begin(const Program& program, Writes writes) {
  std::lock_guard lock(mutex_);
  SLUICE_CHECK(!running_, "a unit is running");
  SLUICE_CHECK(static_cast<int>(program.hops().size()) <= parts_.max_hops, "a program longer than planned for");
  program_ = &program;
  writes_ = writes;
  error_ = nullptr;
  abandoned_ = false;
  released_ = -1;
  entered_ = false;
  running_ = true;
  thread_wakes_.notify_one();
}

void Executor::enter(int hop) {
  std::unique_lock lock(mutex_);
  caller_wakes_.wait(lock, [&] { return released_ == hop || !running_; });
  if (released_ == hop) {
    entered_ = true;
    return;
  }
  if (error_) std::rethrow_exception(error_);
  check_failed("released", __FILE__, __LINE__, "a compute hop was entered out of order");
}

void Executor::leave(int hop) {
  {
    std::lock_guard lock(mutex_);
    SLUICE_CHECK(released_ == hop && entered_, "a compute hop was left that was not entered");
    released_ = -1;
    entered_ = false;
  }
  try {
    parts_.device->finish_compute(static_cast<uint64_t>(hop));
  } catch (...) {
    ended(hop, std::current_exception());
  }
}

void Executor::abandon() {
  {
    std::lock_guard lock(mutex_);
    if (!running_) return;
    abandoned_ = true;
    entered_ = false;
    take_back_released();
  }
  parts_.store->interrupt();
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
  ends_.push_back({hop, std::move(error)});
  parts_.store->interrupt();
}

void Executor::copied(uint64_t tag, std::exception_ptr error) noexcept {
  ended(static_cast<int>(tag), std::move(error));
}

int64_t Executor::memory_bytes() const {
  return static_cast<int64_t>(waiting_.capacity() * sizeof(int32_t) +
                              (begin_ns_.capacity() + end_ns_.capacity()) * sizeof(int64_t) +
                              (ends_.capacity() + taken_.capacity()) * sizeof(End));
}

void Executor::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    thread_wakes_.wait(lock, [this] { return stop_ || running_; });
    if (!running_) return;
    lock.unlock();
    run_unit();
    lock.lock();
    running_ = false;
    ends_.clear();
    caller_wakes_.notify_all();
  }
}

// From the first hop to the last, or to the end of what was under way when one failed.
void Executor::run_unit() {
  const auto hops = program_->hops();
  remaining_ = static_cast<int>(hops.size());
  waiting_.resize(hops.size());
  for (int hop = 0; hop < remaining_; ++hop) waiting_[hop] = static_cast<int>(program_->predecessors(hop).size());
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane].hops = program_->lane(static_cast<Lane>(lane));
    lanes_[lane].next = 0;
  }
  begin_ns_.assign(hops.size(), 0);
  end_ns_.assign(hops.size(), 0);
  times_ = {};
  unit_begin_ns_ = now_ns();
  for (;;) {
    while (start_ready()) {
    }
    if (idle()) break;
    if (!take_ends()) poll_store(Wait::kUntilOne);
    poll_store(Wait::kNo);
  }
  times_.elapsed_ns = now_ns() - unit_begin_ns_;
  if (parts_.trace) write_trace(*parts_.trace);
}

// All hops have ended, or nothing is under way after a failure.
bool Executor::idle() const {
  if (remaining_ == 0) return true;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneState& lane) { return lane.in_flight == 0; });
}

// Starts every lane's next hops whose predecessors have ended. True if a hop without anything to do has ended at once,
// so that others may have become ready.
bool Executor::start_ready() {
  {
    std::lock_guard lock(mutex_);
    if (error_) return false;
  }
  bool passed_over = false;
  for (LaneState& lane : lanes_) {
    while (lane.next < lane.hops.size() && lane.in_flight < lane.limit && waiting_[lane.hops[lane.next]] == 0) {
      const int hop = lane.hops[lane.next++];
      const Hop& what = program_->hops()[hop];
      bool due = what.lane != Lane::kCompute && parts_.work->due(what);
      if (what.lane == Lane::kCompute) {
        std::lock_guard lock(mutex_);
        due = !abandoned_;
      }
      if (due) {
        begin_ns_[hop] = now_ns();
        pass_time(begin_ns_[hop]);
        ++lane.in_flight;
        start_or_fail(hop);
      } else {
        settle(hop);
        passed_over = true;
      }
    }
  }
  return passed_over;
}

// A hop that cannot even start ends with its error, like one that failed under way.
void Executor::start_or_fail(int hop) {
  try {
    start(hop);
  } catch (...) {
    std::lock_guard lock(mutex_);
    ends_.push_back({hop, std::current_exception()});
  }
}

void Executor::start(int hop) {
  switch (program_->hops()[hop].verb) {
    case Verb::kSwapIn:
    case Verb::kSwapOut:
      return start_transfer(hop);
    case Verb::kUpload:
      return start_copy(hop, CopyLane::kUpload);
    case Verb::kDownload:
      return start_copy(hop, CopyLane::kDownload);
    case Verb::kUpdate:
    case Verb::kVerify:
    case Verb::kSeal:
      return parts_.work->start_update(hop, program_->hops()[hop]);
    case Verb::kCommit:
      return parts_.store->commit(parts_.work->commit_state(), static_cast<uint64_t>(hop));
    case Verb::kCompute:
    case Verb::kClose:
    case Verb::kClip:
      return release_compute(hop);
  }
}

void Executor::start_transfer(int hop) {
  const Hop& what = program_->hops()[hop];
  const RecordId record{static_cast<uint32_t>(what.index), what.group};
  const auto tag = static_cast<uint64_t>(hop);
  std::byte* memory = parts_.host->at(what.host_offset);
  const bool in = what.verb == Verb::kSwapIn;
  if (what.operands >= 0) {
    in ? parts_.store->read_scratch(what.operands, memory, tag)
       : parts_.store->write_scratch(what.operands, memory, tag);
  } else if (in) {
    parts_.store->read(record, memory, tag);
  } else if (writes_ == Writes::kRehearsed) {
    parts_.store->rehearse_write(record, memory, tag);
  } else {
    parts_.store->write(record, memory, tag);
  }
}

void Executor::start_copy(int hop, CopyLane lane) {
  const Hop& what = program_->hops()[hop];
  std::byte* host = parts_.host->at(what.host_offset);
  std::byte* device = parts_.device->memory() + what.device_offset;
  const bool up = lane == CopyLane::kUpload;
  parts_.device->start({.lane = lane,
                        .to = up ? device : host,
                        .from = up ? host : device,
                        .bytes = what.bytes,
                        .tag = static_cast<uint64_t>(hop)});
}

void Executor::release_compute(int hop) {
  std::lock_guard lock(mutex_);
  released_ = hop;
  caller_wakes_.notify_all();
}

// Takes what has ended on other threads. False: nothing.
bool Executor::take_ends() {
  {
    std::lock_guard lock(mutex_);
    std::swap(taken_, ends_);
  }
  for (const End& end : taken_) complete(end.hop, end.error);
  const bool any = !taken_.empty();
  taken_.clear();
  return any;
}

bool Executor::poll_store(Wait wait) {
  StoreCompletion done[16];
  size_t count = 0;
  try {
    count = parts_.store->poll(done, wait);
  } catch (...) {  // the queue itself broke: none of its transfers will be reported any more
    fail(std::current_exception());
    lanes_[static_cast<int>(Lane::kRead)].in_flight = 0;
    lanes_[static_cast<int>(Lane::kWrite)].in_flight = 0;
  }
  for (size_t i = 0; i < count; ++i) complete(static_cast<int>(done[i].tag), done[i].error);
  return count > 0;
}

// What has been under way since the last hop began or ended.
void Executor::pass_time(int64_t now) {
  const bool computes = lanes_[static_cast<size_t>(Lane::kCompute)].in_flight > 0;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].in_flight == 0) continue;
    times_.busy_ns[lane] += now - counted_until_ns_;
    if (!computes) times_.exposed_ns[lane] += now - counted_until_ns_;
  }
  counted_until_ns_ = now;
}

// A hop that was under way has ended.
void Executor::complete(int hop, const std::exception_ptr& error) {
  const Hop& what = program_->hops()[hop];
  const int lane = static_cast<int>(what.lane);
  const int64_t now = now_ns();
  end_ns_[hop] = now;
  times_.bytes[lane] += what.bytes;
  times_.group_bytes[lane][static_cast<int>(what.group)] += what.bytes;
  pass_time(now);
  --lanes_[lane].in_flight;
  if (error) return fail(error);
  settle(hop);
}

// The hop has ended, done or passed over: its successors wait for one less.
void Executor::settle(int hop) {
  --remaining_;
  for (int32_t successor : program_->successors(hop)) --waiting_[successor];
}

// The first error is the unit's. A compute hop that was released and not entered yet is taken back.
void Executor::fail(const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  take_back_released();
}

// With mutex_ held: ends a compute hop that was released and that nobody is in.
void Executor::take_back_released() {
  if (released_ < 0 || entered_) return;
  ends_.push_back({released_, nullptr});
  released_ = -1;
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
  const auto hops = program_->hops();
  for (size_t hop = 0; hop < hops.size(); ++hop) {
    if (end_ns_[hop] == 0) continue;
    to.event(static_cast<int>(hops[hop].lane), parts_.work->hop_name(hops[hop]), begin_ns_[hop], end_ns_[hop]);
  }
}

}  // namespace sluice
