// The executor over a device that does nothing when it is called, as a GPU does: what is ordered where, and that no
// order lets anybody see bytes too early or too late.
#include "offload/executor.h"

#include <gtest/gtest.h>

#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/fakes/late_device.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

constexpr int64_t kCellFloats = 64, kCellBytes = 4 * kCellFloats, kCells = 5;
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
  void starting(const Hop&) override {}
  void start_update(int hop, const Hop&) override { updates_.start(hop); }
  const StepState& commit_state() override { return state_; }
  TraceLabel hop_label(const Hop&) const override { return {"hop", "work"}; }

  TempFolder folder_;
  TestRun run_of_store_;
  std::unique_ptr<RecordStore> store_ =
      RecordStore::create(run_of_store_.geometry, run_of_store_.identity, {.folder = folder_.path()});
  StepState state_;
  Arena host_{kCells * kCellBytes};
  Program program_;
  std::vector<Action> actions_;
  LateDevice device_{kCells * kCellBytes};
  std::unique_ptr<Executor> executor_;
  Executor* told_ = nullptr;  // the same, while it is being destroyed too
  Updates updates_{[this](int hop) {
    run(actions_[program_.hops()[hop].chunk]);
    told_->ended(hop, nullptr);
  }};
};

TEST_F(Executors, start_what_the_device_orders_itself_before_it_has_done_anything) {
  const Cell host0{Place::kHost, 0}, host1{Place::kHost, 1}, device0{Place::kDevice, 0}, device1{Place::kDevice, 1};
  emit(Verb::kUpload, {host0, device0});
  const int first = emit(Verb::kCompute, {device0, device1, true});
  const int second = emit(Verb::kCompute, {device1, device0, true});
  emit(Verb::kDownload, {device0, host1});
  emit(Verb::kUpdate, {host1, host0, true});
  const int clip = emit(Verb::kClip, {device1, host1, true});
  make_executor();

  const std::vector<float> expected = in_order();
  device_.hold();
  executor_->begin(program_);
  compute(first);
  compute(second);
  device_.wait_until_started({.upload = 1, .download = 1, .compute = 2});
  device_.let_go();
  compute(clip);  // done by the host: after the end of what it reads
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

// The update waits for the download that has nothing to do, and so for the one that this one would overwrite.
TEST_F(Executors, let_nothing_slip_past_a_hop_that_has_nothing_to_do) {
  const Cell host0{Place::kHost, 0}, host1{Place::kHost, 1}, device0{Place::kDevice, 0}, device1{Place::kDevice, 1};
  const int first = emit(Verb::kCompute, {device1, device0, true});
  emit(Verb::kDownload, {device0, host0});
  emit(Verb::kDownload, {device1, host0, false, false});
  emit(Verb::kUpdate, {host0, host1, true});
  make_executor();
  const std::vector<float> expected = in_order();
  device_.hold();
  executor_->begin(program_);
  compute(first);
  device_.wait_until_started({.download = 1, .compute = 1});
  device_.let_go();
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

TEST_F(Executors, say_when_hops_began_and_ended_as_the_device_came_to_them) {
  const Cell host0{Place::kHost, 0}, device0{Place::kDevice, 0}, device1{Place::kDevice, 1};
  emit(Verb::kUpload, {host0, device0});
  const int only = emit(Verb::kCompute, {device0, device1, true});
  make_executor();
  device_.hold();
  executor_->begin(program_);
  compute(only);
  device_.let_go();
  const UnitTimes& times = executor_->finish();
  // While the upload was under way compute was not: its time is the upload's alone.
  const auto busy = [&](Lane lane) { return times.busy_ns[static_cast<int>(lane)]; };
  EXPECT_GT(busy(Lane::kUpload), 0);  // compute may have none: the executor can hear of both ends at once
  EXPECT_EQ(times.exposed_ns[static_cast<int>(Lane::kUpload)], busy(Lane::kUpload));
  EXPECT_LE(busy(Lane::kUpload) + busy(Lane::kCompute), times.elapsed_ns);
}

// The upload writes what the download reads: it is started behind it.
TEST_F(Executors, start_an_upload_behind_a_download_that_the_device_has_not_done) {
  const Cell host0{Place::kHost, 0}, host1{Place::kHost, 1}, device0{Place::kDevice, 0};
  emit(Verb::kDownload, {device0, host1});
  emit(Verb::kUpload, {host0, device0});
  make_executor();
  const std::vector<float> expected = in_order();
  device_.hold();
  executor_->begin(program_);
  device_.wait_until_started({.upload = 1, .download = 1});
  device_.let_go();
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

// Random programs, some hops without anything to do.
class RandomPrograms : public Executors {
 protected:
  static constexpr int kHops = 60;

  void make_program(unsigned seed) {
    std::mt19937 random(seed);
    program_ = {};
    actions_.clear();
    fill();
    const auto cell = [&](Place place) { return Cell{place, static_cast<int64_t>(random() % kCells)}; };
    for (int i = 0; i < kHops; ++i) {
      const Cell host = cell(Place::kHost), device = cell(Place::kDevice);
      const bool is_due = random() % 4 != 0;
      switch (random() % 5) {
        case 0:
          emit(Verb::kUpload, {host, device, false, is_due});
          break;
        case 1:
          emit(Verb::kDownload, {device, host, false, is_due});
          break;
        case 2:
          emit(Verb::kUpdate, {host, cell(Place::kHost), true, is_due});
          break;
        case 3:
          emit(Verb::kClip, {device, cell(Place::kDevice), true});
          break;
        default:
          emit(Verb::kCompute, {device, cell(Place::kDevice), true});
      }
    }
    make_executor();
  }
  // The first so many compute hops. Returns the next one.
  int compute_some(size_t count) {
    const auto lane = program_.lane(Lane::kCompute);
    for (size_t i = 0; i < std::min(count, lane.size()); ++i) compute(lane[i]);
    return count < lane.size() ? lane[count] : kHops;
  }
};

TEST_F(RandomPrograms, leave_what_the_list_leaves_in_its_order) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    make_program(seed);
    const std::vector<float> expected = in_order();
    executor_->begin(program_);
    compute_some(kHops);
    executor_->finish();
    ASSERT_EQ(contents(), expected) << "program " << seed;
  }
}

TEST_F(RandomPrograms, that_the_caller_gives_up_do_everything_else) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    make_program(seed);
    executor_->begin(program_);
    const int next = compute_some(seed % 20);
    const bool inside = seed % 3 == 0 && next < kHops;
    if (inside) executor_->enter(next);
    executor_->abandon();
    executor_->finish();
    const std::vector<float> found = contents();
    ASSERT_EQ(found, in_order(next)) << "program " << seed;
  }
}

TEST_F(RandomPrograms, that_are_left_in_the_middle_end) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    make_program(seed);
    if (seed % 2 == 0) device_.hold();
    executor_->begin(program_);
    if (seed % 2 == 1) compute_some(seed % 20);
    const std::jthread other([this] { device_.let_go(); });
    executor_.reset();
  }
}

TEST_F(RandomPrograms, with_a_copy_that_fails_throw_its_error) {
  int failed = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    make_program(seed);
    device_.fail_next(seed % 2 == 0 ? CopyLane::kUpload : CopyLane::kDownload);
    executor_->begin(program_);
    try {
      compute_some(kHops);
      executor_->finish();
    } catch (const DeviceError& error) {
      EXPECT_STREQ(error.what(), "this copy was to fail");
      ++failed;
    }
    executor_.reset();
  }
  EXPECT_GT(failed, 90);
}

}  // namespace
}  // namespace sluice
