// The executor's own thread. What others call is in executor_calls.cpp.
#include "offload/executor.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/errors.h"
#include "core/threads.h"

namespace sluice {
namespace {

// Records and copies in flight at once, per lane: enough to keep a drive's queue full, few enough that list order still
// says what comes first.
constexpr int kTransfersInFlight = 8;
constexpr int kCopiesInFlight = 4;
// Compute hops called for and not yet done by the device: the caller's calls hide behind it.
constexpr int kComputeInFlight = 4;
static_assert(kCopiesInFlight <= Device::kMaxCopies && kComputeInFlight <= Device::kMaxCopies);

// Does the device bring this hop in order with its other work?
bool is_on_device(const Hop& hop) {
  const bool computes = hop.lane() == Lane::kCompute && hop.verb != Verb::kClip;
  return computes || hop.lane() == Lane::kUpload || hop.lane() == Lane::kDownload;
}
uint64_t& place_in(DeviceOrder& order, Lane lane) {
  return lane == Lane::kUpload ? order.upload : lane == Lane::kDownload ? order.download : order.compute;
}

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
  states_.reserve(parts_.max_hops);
  // Every hop ends once, a compute hop is told of twice, and only so many are in flight at once.
  const size_t most_told =
      2 * (kTransfersInFlight + kCopiesInFlight + kComputeInFlight) + static_cast<size_t>(parts_.update_hops) + 2;
  told_.reserve(most_told);
  taken_.reserve(most_told);
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane].limit = in_flight_limit(static_cast<Lane>(lane), parts_.update_hops);
  }
  lanes_[static_cast<int>(Lane::kCompute)].limit = kComputeInFlight;
  begin_ns_.reserve(parts_.max_hops);
  end_ns_.reserve(parts_.max_hops);
  if (parts_.store != nullptr) set_store(*parts_.store);
  parts_.device->set_sink(this);
  thread_ = start_thread("the executor's thread", [this] { run(); });
}

void Executor::set_store(RecordStore& store) {
  parts_.store = &store;
  if (parts_.trace) name_rows(*parts_.trace);
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
    told_.clear();
    caller_wakes_.notify_all();
  }
}

// From the first hop to the last, or to the end of what was under way when one failed.
void Executor::run_unit() {
  const auto hops = program_->hops();
  remaining_ = static_cast<int>(hops.size());
  states_.assign(hops.size(), {});
  for (int hop = 0; hop < remaining_; ++hop) {
    states_[hop].waiting = states_[hop].unended = static_cast<int>(program_->predecessors(hop).size());
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane].hops = program_->lane(static_cast<Lane>(lane));
    lanes_[lane].next = 0;
    lanes_[lane].on_device.fill({});
  }
  begin_ns_.assign(hops.size(), 0);
  end_ns_.assign(hops.size(), 0);
  times_ = {};
  unit_begin_ns_ = now_ns();
  for (;;) {
    while (start_ready()) {
    }
    if (idle()) break;
    if (!take_told()) poll_store(Wait::kUntilOne);
    poll_store(Wait::kNo);
  }
  times_.elapsed_ns = now_ns() - unit_begin_ns_;
  if (!parts_.trace) return;
  try {
    write_trace(*parts_.trace);
  } catch (...) {  // no memory for its text
    fail(std::current_exception());
  }
}

// All hops have ended, or nothing is under way after a failure.
bool Executor::idle() const {
  if (remaining_ == 0) return true;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneState& lane) { return lane.in_flight == 0; });
}

bool Executor::due(const Hop& hop) {
  if (hop.lane() != Lane::kCompute) return parts_.work->due(hop);
  std::lock_guard lock(mutex_);
  return !abandoned_;
}

// He is in one compute hop at a time.
bool Executor::caller_is_free() {
  std::lock_guard lock(mutex_);
  return released_ == kNone;
}

// Starts every lane's next hops that nothing keeps from it. True if others may have become ready by that: those behind
// a copy that the device has got, or behind a hop without anything to do, which has ended at once. Such a hop ends
// after those that it stands behind: others wait for it alone.
bool Executor::start_ready() {
  {
    std::lock_guard lock(mutex_);
    if (error_) return false;
  }
  bool more = false;
  for (LaneState& lane : lanes_) {
    for (; lane.next < lane.hops.size() && lane.in_flight < lane.limit; ++lane.next) {
      const int hop = lane.hops[lane.next];
      const Hop& what = program_->hops()[hop];
      HopState& state = states_[hop];
      if (state.waiting > 0 || (what.lane() == Lane::kCompute && !caller_is_free())) break;
      if (due(what)) {
        ++lane.in_flight;
        state.stage = HopState::Stage::kStarted;
        if (state.unended == 0) begin_work(hop, now_ns());
        parts_.work->starting(what);
        start_or_fail(hop);
        more |= state.on_device == HopState::OnDevice::kYes;
      } else if (state.unended == 0) {
        settle(hop, now_ns());
        more = true;
      } else {
        break;
      }
    }
  }
  return more;
}

// It has been started, and all that it waited for has ended.
void Executor::begin_work(int hop, int64_t now) {
  begin_ns_[hop] = now;
  pass_time(now);
  states_[hop].stage = HopState::Stage::kUnderWay;
  ++lane_of(hop).under_way;
}

// A hop that cannot even start ends with its error, like one that failed under way.
void Executor::start_or_fail(int hop) {
  try {
    start(hop);
  } catch (...) {
    std::lock_guard lock(mutex_);
    told_.push_back({.hop = hop, .what = Told::What::kEnded, .error = std::current_exception()});
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
  const auto tag = static_cast<uint64_t>(hop);
  std::byte* memory = parts_.host->at(what.host_offset);
  const bool in = what.verb == Verb::kSwapIn;
  if (const int extent = what.scratch_extent; extent >= 0) {
    in ? parts_.store->read_scratch(extent, memory, tag) : parts_.store->write_scratch(extent, memory, tag);
    return;
  }
  const RecordId record{static_cast<uint32_t>(what.chunk), what.group};
  if (in) {
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
  note_device_work(hop, parts_.device->start({.lane = lane,
                                              .to = up ? device : host,
                                              .from = up ? host : device,
                                              .bytes = what.bytes,
                                              .tag = static_cast<uint64_t>(hop),
                                              .after = order_on_device(hop)}));
}

void Executor::release_compute(int hop) {
  std::lock_guard lock(mutex_);
  released_ = hop;
  released_after_ = order_on_device(hop);
  if (abandoned_ || error_) take_back_released();  // since it was asked whether this is due
  caller_wakes_.notify_all();
}

// What the hop's predecessors still do on the device.
DeviceOrder Executor::order_on_device(int hop) {
  DeviceOrder order;
  for (const int32_t before : program_->predecessors(hop)) {
    if (states_[before].on_device == HopState::OnDevice::kNo) continue;
    uint64_t& last = place_in(order, program_->hops()[before].lane());
    last = std::max(last, device_work(lane_of(before), before).number);
  }
  return order;
}

Executor::LaneState::DeviceWork& Executor::device_work(LaneState& lane, int hop) {
  return *std::ranges::find(lane.on_device, hop, &LaneState::DeviceWork::hop);
}

// The hop is in flight on the device: what follows it there need not wait for its end here.
void Executor::note_device_work(int hop, uint64_t number) {
  if (!is_on_device(program_->hops()[hop])) return;
  states_[hop].on_device = HopState::OnDevice::kYes;
  device_work(lane_of(hop), -1) = {hop, number};
  for (const int32_t successor : program_->successors(hop)) {
    if (is_on_device(program_->hops()[successor])) --states_[successor].waiting;
  }
}

// Takes what other threads have told. False: nothing, and it is waited for next.
bool Executor::take_told() {
  {
    std::lock_guard lock(mutex_);
    std::swap(taken_, told_);
    asleep_ = taken_.empty();
  }
  for (const Told& told : taken_) {
    if (told.what == Told::What::kEnded) complete(told.hop, told.error);
    if (told.what == Told::What::kOnDevice) note_device_work(told.hop, told.number);
    if (told.what == Told::What::kTakenBack) take_back(told.hop);
  }
  const bool any = !taken_.empty();
  taken_.clear();
  return any;
}

// Of a queue that broke nothing is known any more: what it still reports is not waited for, nor counted.
void Executor::poll_store(Wait wait) {
  if (store_broke_) {
    if (wait == Wait::kNo) return;
    std::unique_lock lock(mutex_);
    thread_wakes_.wait(lock, [this] { return !told_.empty(); });
    return;
  }
  StoreCompletion done[16];
  size_t count = 0;
  try {
    count = parts_.store->poll(done, wait);
  } catch (...) {
    store_broke_ = true;
    fail(std::current_exception());
    for (const Lane lane : {Lane::kRead, Lane::kWrite}) {
      lanes_[static_cast<int>(lane)].in_flight = lanes_[static_cast<int>(lane)].under_way = 0;
    }
  }
  if (wait == Wait::kUntilOne) {
    std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  for (size_t i = 0; i < count; ++i) complete(static_cast<int>(done[i].tag), done[i].error);
}

// What has been under way since the last hop began or ended.
void Executor::pass_time(int64_t now) {
  const bool computes = lanes_[static_cast<size_t>(Lane::kCompute)].under_way > 0;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane].under_way == 0) continue;
    times_.busy_ns[lane] += now - counted_until_ns_;
    if (!computes) times_.exposed_ns[lane] += now - counted_until_ns_;
  }
  const auto under_way = [this](Lane lane) { return lanes_[static_cast<size_t>(lane)].under_way; };
  if (under_way(Lane::kRead) + under_way(Lane::kWrite) > 0) times_.drive_busy_ns += now - counted_until_ns_;
  counted_until_ns_ = now;
}

// A hop that was in flight has ended. Threads of the device tell ends of different orders as they come to it, so that
// of a predecessor may be told later.
void Executor::complete(int hop, const std::exception_ptr& error) {
  const Hop& what = program_->hops()[hop];
  LaneState& lane = lane_of(hop);
  const int64_t now = now_ns();
  if (states_[hop].stage == HopState::Stage::kStarted) begin_work(hop, now);
  end_ns_[hop] = now;
  times_.bytes[static_cast<int>(what.lane())] += what.bytes;
  times_.group_bytes[static_cast<size_t>(what.lane())][static_cast<size_t>(what.group)] += what.bytes;
  pass_time(now);
  --lane.under_way;
  --lane.in_flight;
  if (error) return fail(error);
  settle(hop, now);
}

// A compute hop is as if it had not been started. It is its lane's last one that was.
void Executor::take_back(int hop) {
  LaneState& lane = lane_of(hop);
  if (states_[hop].stage == HopState::Stage::kUnderWay) {
    pass_time(now_ns());
    --lane.under_way;
  }
  states_[hop].stage = HopState::Stage::kWaiting;
  --lane.in_flight;
  --lane.next;
  std::lock_guard lock(mutex_);
  released_ = kNone;
}

// The hop has ended, done or passed over: its successors wait for one less.
void Executor::settle(int hop, int64_t now) {
  HopState& state = states_[hop];
  const bool was_on_device = state.on_device == HopState::OnDevice::kYes;
  if (was_on_device) device_work(lane_of(hop), hop) = {};
  state.on_device = HopState::OnDevice::kNo;
  state.stage = HopState::Stage::kEnded;
  --remaining_;
  for (const int32_t successor : program_->successors(hop)) {
    HopState& next = states_[successor];
    if (!was_on_device || !is_on_device(program_->hops()[successor])) --next.waiting;
    if (--next.unended == 0 && next.stage == HopState::Stage::kStarted) begin_work(successor, now);
  }
}

// The first error is the unit's. A compute hop that was released and not entered yet is taken back.
void Executor::fail(const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  take_back_released();
}

// With mutex_ held: takes back a compute hop that was released and that nobody is in.
void Executor::take_back_released() {
  if (released_ < 0 || entered_) return;
  told_.push_back({.hop = released_, .what = Told::What::kTakenBack});
  released_ = kBeingTakenBack;
}

}  // namespace sluice
