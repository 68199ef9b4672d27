// The trace of a run: valid, complete, and showing lanes at work side by side where the program lets them. What must
// overlap is forced by events: a request is held back until a turn has begun, and the turn lasts until it has ended.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/engine/engine_fixture.h"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

// Holds back requests of one kind, from the nth on, until the gate is opened.
struct Gate {
  std::mutex mutex;
  std::condition_variable wakes;
  IoOp op = IoOp::kWrite;
  int64_t seen[3] = {};          // requests by IoOp
  int64_t first_held = -1;       // of seen[op]; -1: none
  int64_t held = 0, passed = 0;  // requests held back so far, and ended after that
  enum class State { kShut, kOpen } state = State::kOpen;
};

class GatedQueue final : public IoQueue {
 public:
  GatedQueue(std::unique_ptr<IoQueue> inner, std::shared_ptr<Gate> gate)
      : IoQueue(inner->depth()), inner_(std::move(inner)), gate_(std::move(gate)) {}
  void interrupt() override { inner_->interrupt(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  void do_submit(const IoRequest& request) override {
    const std::lock_guard lock(gate_->mutex);
    const int64_t number = gate_->seen[static_cast<int>(request.op)]++;
    if (gate_->state == Gate::State::kOpen || request.op != gate_->op || number < gate_->first_held) {
      inner_->submit(request);
    } else {
      ++gate_->held;
      held_.push_back(request);
      gate_->wakes.notify_all();
    }
  }
  void do_flush() override { inner_->flush(); }
  size_t do_poll(std::span<IoCompletion> completions, Wait wait) override {
    {
      const std::lock_guard lock(gate_->mutex);
      if (gate_->state == Gate::State::kOpen && !held_.empty() && wait == Wait::kUntilOne) {
        // The executor first hears what it was told before the gate was opened: that the turn has begun, for one.
        if (!std::exchange(is_seen_open_, true)) return 0;
        for (const IoRequest& request : held_) {
          inner_->submit(request);
          tags_[request.tag] = 0;
        }
        held_.clear();
        inner_->flush();
      }
    }
    const size_t count = inner_->poll(completions, wait);
    const std::lock_guard lock(gate_->mutex);
    for (size_t i = 0; i < count; ++i) gate_->passed += static_cast<int64_t>(tags_.erase(completions[i].tag));
    gate_->wakes.notify_all();
    return count;
  }

  std::unique_ptr<IoQueue> inner_;
  std::shared_ptr<Gate> gate_;
  std::vector<IoRequest> held_;
  bool is_seen_open_ = false;
  std::map<uint64_t, int> tags_;
};

class Traces : public ::testing::Test {
 protected:
  Traces() {
    options_ = engine_options(folder_, reference_);
    options_.plan.placement.weights = options_.plan.placement.state = {{HomeKind::kNvme, 1}};
    options_.plan.commit_interval = 1;
    options_.trace_path = (folder_.path() / "trace.json").string();
    options_.store.make_queue = [this](const IoQueueOptions& queue) {
      auto gated = std::make_unique<GatedQueue>(make_io_queue(queue), gate_);
      queue_ = gated.get();
      return gated;
    };
  }
  // From now on, requests of this kind after the next `let_pass` are held back.
  void shut(IoOp op, int64_t let_pass) {
    const std::lock_guard lock(gate_->mutex);
    gate_->op = op;
    gate_->state = Gate::State::kShut;
    gate_->first_held = gate_->seen[static_cast<int>(op)] + let_pass;
    gate_->held = gate_->passed = 0;
  }
  int64_t seen(IoOp op) {
    const std::lock_guard lock(gate_->mutex);
    return gate_->seen[static_cast<int>(op)];
  }
  // In a turn: opens the gate once something waits behind it, and comes back when that has ended.
  void open_and_wait() {
    std::unique_lock lock(gate_->mutex);
    const auto limit = std::chrono::minutes(2);  // never reached unless the lanes do not overlap
    if (!gate_->wakes.wait_for(lock, limit, [&] { return gate_->held > 0; })) return;
    gate_->state = Gate::State::kOpen;
    lock.unlock();
    queue_->interrupt();
    lock.lock();
    gate_->wakes.wait_for(lock, limit, [&] { return gate_->passed > 0; });
  }
  // Trains a step whose turn (visit, pass, micro-batch) opens the gate.
  void step(Engine& engine, int visit = -1, Pass pass = Pass::kForward, int micro_batch = 0) {
    const int64_t number = engine.step() + 1;
    const Compute plain = toy_compute(model_, number);
    engine.train_step(reference_.learning_rate, [&](Use& use) {
      if (use.visit() == visit && use.pass() == pass && use.micro_batch() == micro_batch) {
        open_and_wait();
      }
      plain(use);
    });
  }
  // The hops of the trace, by row.
  struct Event {
    std::string name, category;
    double begin_us, end_us;
    int64_t step;
  };
  std::map<std::string, std::vector<Event>> rows() const {
    std::ifstream file(options_.trace_path);
    const Json trace = Json::parse(file);
    std::map<int, std::string> names;
    std::map<int, double> ends;  // events of one thread must not overlap
    std::map<std::string, std::vector<Event>> rows;
    for (const Json& event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], 1);
      EXPECT_GE(event["tid"], 1);  // 0 is the idle task of a kernel
      if (event["ph"] == "M") {
        EXPECT_EQ(event["name"], "thread_name");
        EXPECT_TRUE(names.emplace(event["tid"], event["args"]["name"]).second) << "a thread named twice";
        continue;
      }
      EXPECT_EQ(event["ph"], "X");
      EXPECT_GE(event["dur"], 0);
      const double begin = event["ts"];
      const double end = begin + event["dur"].get<double>();
      EXPECT_GE(begin, ends[event["tid"]] - 0.0005) << event["name"];  // microseconds, rounded to nanoseconds
      ends[event["tid"]] = end;
      const std::string& name = names.at(event["tid"]);  // "read", "read 2"
      rows[name.substr(0, name.find(' '))].push_back(
          {event["name"], event["cat"], begin, end, event.contains("args") ? event["args"]["during_step"] : Json(-1)});
    }
    EXPECT_EQ(rows.size(), 6u);
    return rows;
  }
  // Is any hop of `row` whose name starts so under way at a time when the one called `beside` of the compute row is?
  static bool overlaps(const std::map<std::string, std::vector<Event>>& rows, const std::string& row,
                       const std::string& start, const std::string& beside) {
    for (const Event& compute : rows.at("compute")) {
      if (compute.name != beside) continue;
      for (const Event& event : rows.at(row)) {
        if (event.name.starts_with(start) && event.begin_us < compute.end_us && event.end_us > compute.begin_us) {
          return true;
        }
      }
    }
    return false;
  }

  TempFolder folder_;
  ReferenceOptions reference_{.micro_batches = 2, .steps = 3, .max_norm = 0.05};
  ModelSpec model_ = toy_model({.visits = 5, .shape = ToyShape::kBoth}, Precision::kBf16);
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  IoQueue* queue_ = nullptr;
  EngineOptions options_;
};

TEST_F(Traces, name_every_hop_by_visit_and_chunk_in_the_order_of_its_lane) {
  {
    Engine engine(model_, options_, toy_source());
    for (int i = 0; i < 3; ++i) step(engine);
  }
  const auto traced = rows();
  ASSERT_EQ(traced.size(), 6u);
  for (const auto& [row, events] : traced) {
    double before = 0;
    for (const Event& event : events) {
      EXPECT_GE(event.begin_us, before) << row << ": " << event.name;
      before = event.begin_us;
      EXPECT_THAT(event.name, ::testing::MatchesRegex("(swap_in|swap_out|update|verify|upload|download) v[0-4] "
                                                      "(state|weights|gradient|tensor) [0-9]+|"
                                                      "compute v[0-4] #[01] (forward|backward)|"
                                                      "close v[0-4] partition [0-9]+|clip|commit"));
    }
  }
  // 4 visits forward, 5 backward, 2 micro-batches each, 5 partitions closed, one clip, in 3 steps.
  std::map<int64_t, size_t> by_step;
  for (const Event& event : traced.at("compute")) ++by_step[event.step];
  constexpr size_t kOfStep = 2 * (4 + 5) + 5 + 1;
  EXPECT_EQ(by_step, (std::map<int64_t, size_t>{{1, kOfStep}, {2, kOfStep}, {3, kOfStep}}));
}

TEST_F(Traces, call_what_validates_no_part_of_a_step) {
  {
    Engine engine(model_, options_, toy_source());
    step(engine);
    engine.evaluate(2, toy_compute(model_, 1));
    engine.drain();
  }
  const auto traced = rows();
  size_t evaluations = 0;
  for (const Event& event : traced.at("compute")) {
    EXPECT_EQ(event.step == -1, event.category == "evaluation") << event.name;
    evaluations += event.name.ends_with(" evaluation") ? 1 : 0;
  }
  EXPECT_EQ(evaluations, 2u * 5);
}

TEST_F(Traces, call_what_a_drain_does_part_of_the_step_before_it) {
  {
    Engine engine(model_, options_, toy_source());
    step(engine);
    engine.drain();
  }
  const auto traced = rows();
  EXPECT_FALSE(traced.at("update").empty()) << "the drain's";
  for (const auto& [row, events] : traced) {
    for (const Event& event : events) EXPECT_EQ(event.step, 1) << row << ": " << event.name;
  }
}

TEST_F(Traces, show_writes_of_updated_chunks_beside_the_first_forward) {
  {
    Engine engine(model_, options_, toy_source());
    step(engine);
    step(engine);
    shut(IoOp::kWrite, 0);
    step(engine, 0, Pass::kForward);
  }
  EXPECT_TRUE(overlaps(rows(), "write", "swap_out", "compute v0 #0 forward"));
}

TEST_F(Traces, show_state_for_the_updates_to_come_read_beside_the_last_backward) {
  {
    Engine engine(model_, options_, toy_source());
    step(engine);
    const int64_t before = seen(IoOp::kRead);
    step(engine);
    const int64_t reads = seen(IoOp::kRead) - before;
    shut(IoOp::kRead, reads - 1);
    step(engine, 0, Pass::kBackward, 1);
  }
  EXPECT_TRUE(overlaps(rows(), "read", "swap_in", "compute v0 #1 backward"));
}

TEST_F(Traces, that_cannot_be_written_whole_say_so_when_they_are_closed_and_harm_no_step) {
  const RunRecord expected = train_reference(model_, reference_);
  for (const char* full : {"/dev/full", ""}) {
    TempFolder folder;
    EngineOptions options = engine_options(folder, reference_);
    options.trace_path = full;
    Engine engine(model_, options, toy_source());
    EXPECT_EQ(train_engine(engine, model_, reference_), expected);
    if (*full == 0) {
      EXPECT_NO_THROW(engine.close_trace()) << "none was asked for";
      continue;
    }
    EXPECT_THROW(engine.close_trace(), IoError);
    EXPECT_NO_THROW(engine.close_trace()) << "said once";
  }
}

// As of a run that is killed.
TEST_F(Traces, are_whole_after_every_step_and_say_what_hops_move_and_do) {
  Engine engine(model_, options_, toy_source());
  step(engine);  // the first has nothing to write
  size_t hops = 0;
  for (int i = 0; i < 3; ++i) {
    step(engine);
    const auto by_row = rows();
    const size_t before = std::exchange(hops, by_row.at("read").size() + by_row.at("compute").size());
    EXPECT_GT(hops, before);
    for (const Event& event : by_row.at("compute")) {
      EXPECT_EQ(event.category, event.name.ends_with("backward")  ? "backward"
                                : event.name.ends_with("forward") ? "forward"
                                : event.name.starts_with("close") ? "gradient"
                                                                  : "control")
          << event.name;
    }
    for (const Event& event : by_row.at("read"))
      EXPECT_THAT(event.name, ::testing::HasSubstr(" " + event.category + " "));
  }
}

TEST_F(Traces, of_the_last_step_are_empty_before_the_first) {
  const std::string none = (folder_.path() / "none.json").string();
  options_.trace_path.clear();
  Engine(model_, options_, toy_source()).write_timeline(none);
  std::ifstream file(none);
  const Json trace = Json::parse(file);
  for (const Json& event : trace["traceEvents"]) EXPECT_EQ(event["ph"], "M") << "more than a row's name";
}

TEST_F(Traces, of_one_step_are_kept_without_a_trace) {
  const std::string one = (folder_.path() / "one.json").string();
  options_.trace_path.clear();
  {
    Engine engine(model_, options_, toy_source());
    for (int i = 0; i < 3; ++i) step(engine);
    engine.write_timeline(one);
  }
  options_.trace_path = one;
  EXPECT_EQ(rows().at("compute").size(), 2u * (4 + 5) + 5 + 1);
}

}  // namespace
}  // namespace sluice::testing
