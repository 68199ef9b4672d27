// Programs whose hops add and copy small cells of host and device memory, on a device that comes to its work late, over
// a store with an I/O queue that can be broken.
#pragma once
#include <gtest/gtest.h>

#include <climits>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "offload/executor.h"
#include "tests/fakes/faulty_queue.h"
#include "tests/fakes/late_device.h"
#include "tests/fakes/message_of.h"
#include "tests/fakes/test_store.h"

namespace sluice {

constexpr int64_t kCellFloats = 64, kCellBytes = 4 * kCellFloats, kCells = 5;
constexpr int64_t kRecordOffset = 4096;  // in host memory, behind the cells
constexpr Place kPlaces[] = {Place::kHost, Place::kDevice};

struct Cell {
  Place place = Place::kHost;
  int64_t number = 0;
  Range range() const { return {place, number * kCellBytes, (number + 1) * kCellBytes}; }
};

// Every hop adds one cell to another, or copies it there: whatever runs too early or too late changes what is left.
struct Action {
  Cell from, to;
  bool adds = false, due = true;
  std::string error = {};  // that it ends with; updates alone
};

// A thread that ends update hops in the order of starting.
class Updates {
 public:
  explicit Updates(std::function<void(int)> run) : run_(std::move(run)) {}
  ~Updates() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void start(int hop) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(hop);
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const int hop = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      run_(hop);
      lock.lock();
    }
  }

  std::function<void(int)> run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> waiting_;
  bool stops_ = false;
  std::thread thread_{[this] { work(); }};
};

class Executors : public testing::Test, public LaneWork {
 protected:
  Executors() { fill(); }

  // Emits a hop that does `action`, whose number stands where a chunk's does.
  int emit(Verb verb, const Action& action) {
    const auto offset = [&](Place place) {
      return (action.from.place == place ? action.from.number : action.to.number) * kCellBytes;
    };
    const std::vector reads{action.from.range(), action.to.range()};
    const Range fill = action.to.range();
    actions_.push_back(action);
    return program_.emit({.verb = verb,
                          .chunk = static_cast<int32_t>(actions_.size()) - 1,
                          .host_offset = offset(Place::kHost),
                          .device_offset = offset(Place::kDevice),
                          .bytes = kCellBytes},
                         std::span(reads).first(action.adds ? 2 : 1), {&fill, 1});
  }
  // Emits the read of a chunk's weights to kRecordOffset on, or their write from there. Before all others: the store
  // has few chunks.
  int emit_swap(Verb verb) {
    const auto chunk = static_cast<int32_t>(actions_.size());
    const Range record{Place::kStore, chunk, chunk + 1}, host{Place::kHost, kRecordOffset, host_.bytes()};
    const bool in = verb == Verb::kSwapIn;
    actions_.push_back({});
    return program_.emit(
        {.verb = verb, .chunk = chunk, .host_offset = kRecordOffset, .bytes = host_.bytes() - kRecordOffset},
        {in ? &record : &host, 1}, {in ? &host : &record, 1});
  }
  void make_executor() {
    program_.finish();
    executor_ = std::make_unique<Executor>(Executor::Parts{.store = store_.get(),
                                                           .device = &device_,
                                                           .host = &host_,
                                                           .work = this,
                                                           .max_hops = static_cast<int>(program_.hops().size())});
    told_ = executor_.get();
  }
  // The caller's side of a compute hop.
  void compute(int hop) {
    const Hop& what = program_.hops()[hop];
    executor_->enter(hop);
    const Action action = actions_[what.chunk];
    what.verb == Verb::kClip ? run(action) : device_.launch([this, action] { run(action); });
    executor_->leave(hop);
  }
  float* at(const Cell& cell) {
    std::byte* base = cell.place == Place::kHost ? host_.at(0) : device_.memory();
    return reinterpret_cast<float*>(base + cell.number * kCellBytes);
  }
  void run(const Action& action) {
    float* to = at(action.to);
    const float* from = at(action.from);
    for (int64_t i = 0; i < kCellFloats; ++i) to[i] = action.adds ? 0.5f * to[i] + from[i] : from[i];
  }
  void fill() {
    for (const Place place : kPlaces) {
      for (int64_t number = 0; number < kCells; ++number) {
        float* values = at({place, number});
        for (int64_t i = 0; i < kCellFloats; ++i) {
          values[i] = static_cast<float>(i + 100 * number + (place == Place::kHost ? 0 : 1000));
        }
      }
    }
  }
  std::vector<float> contents() {
    std::vector<float> values;
    for (const Place place : kPlaces) values.insert(values.end(), at({place, 0}), at({place, kCells}));
    return values;
  }

  // What the list leaves, one hop after the other, when the compute hops from this one on are passed over.
  std::vector<float> in_order(int end_of_compute = INT_MAX) {
    fill();
    for (int hop = 0; hop < static_cast<int>(actions_.size()); ++hop) {
      const bool computes = program_.hops()[hop].lane() == Lane::kCompute;
      if (actions_[hop].due && !(computes && hop >= end_of_compute)) run(actions_[hop]);
    }
    std::vector<float> left = contents();
    fill();
    return left;
  }

  bool due(const Hop& hop) const override { return actions_[hop.chunk].due; }
  void starting(const Hop& hop) override {
    if (when_starting_) when_starting_(hop);
  }
  void start_update(int hop, const Hop&) override { updates_.start(hop); }
  const StepState& commit_state() override { return state_; }
  TraceLabel hop_label(const Hop&) const override { return {"hop", "work"}; }

  TempFolder folder_;
  TestRun run_of_store_;
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<RecordStore> store_ =
      RecordStore::create(run_of_store_.geometry, run_of_store_.identity,
                          {.folder = folder_.path(), .make_queue = faulty_queue_factory(faults_)});
  StepState state_;
  Arena host_{kRecordOffset + run_of_store_.layout({.chunk = 0, .group = Group::kWeights}).bytes};
  Program program_;
  std::vector<Action> actions_;
  LateDevice device_{kCells * kCellBytes};
  std::function<void(const Hop&)> when_starting_;  // on the executor's thread
  std::unique_ptr<Executor> executor_;
  Executor* told_ = nullptr;  // the same, while it is being destroyed too
  Updates updates_{[this](int hop) {
    const Action& action = actions_[program_.hops()[hop].chunk];
    run(action);
    told_->ended(hop, action.error.empty() ? nullptr : std::make_exception_ptr(DeviceError(action.error)));
  }};
};

}  // namespace sluice
