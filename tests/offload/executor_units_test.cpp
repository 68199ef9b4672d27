// What a unit leaves for the next call and for the next unit: errors, records, times.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <latch>
#include <regex>
#include <stdexcept>

#include "core/clock.h"
#include "tests/offload/executor_fixture.h"

namespace sluice {
namespace {

class Units : public Executors {
 protected:
  static constexpr Cell kHost0{Place::kHost, 0}, kHost1{Place::kHost, 1}, kHost2{Place::kHost, 2};
  static constexpr Cell kDevice0{Place::kDevice, 0}, kDevice1{Place::kDevice, 1}, kDevice2{Place::kDevice, 2};
  static int64_t of(const std::array<int64_t, kLaneCount>& times, Lane lane) { return times[static_cast<int>(lane)]; }

  void start_update(int hop, const Hop& what) override {
    if (updates_are_refused_) throw DeviceError("this update cannot start");
    Executors::start_update(hop, what);
  }
  // A unit of one record on its way.
  void expect_busy_drive(Verb verb) {
    write_step(*store_, run_of_store_, 0);
    emit_swap(verb);
    make_executor();
    executor_->begin(program_, Executor::Writes::kRehearsed);
    const UnitTimes& times = executor_->finish();
    EXPECT_GT(times.drive_busy_ns, 0);
    EXPECT_EQ(times.drive_busy_ns, of(times.busy_ns, lane_of(verb)));
    EXPECT_EQ(of(times.bytes, lane_of(verb)), host_.bytes() - kRecordOffset);
  }

  TraceLabel hop_label(const Hop& hop) const override { return {std::string(name_of(hop.verb)), "work"}; }
  struct Traced {
    std::string name;
    double begin_us = 0;
  };
  // Of the last unit.
  std::vector<Traced> traced() {
    const std::string path = (folder_.path() / "trace.json").string();
    TraceWriter trace(path);
    executor_->write_trace(trace);
    trace.close();
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    static const std::regex kEvent("\"name\":\"([a-z]*)\".*\"ts\":([^,]*),");
    std::vector<Traced> events;
    for (std::sregex_iterator at(text.begin(), text.end(), kEvent), end; at != end; ++at) {
      events.push_back({(*at)[1], std::stod((*at)[2])});
    }
    return events;
  }

  bool updates_are_refused_ = false;
};

// Both are under way before either ends.
TEST_F(Units, with_two_errors_throw_the_first) {
  emit(Verb::kUpdate, {.from = kHost0, .to = kHost1, .error = "the first"});
  emit(Verb::kUpdate, {.from = kHost0, .to = kHost2, .error = "the second"});
  make_executor();
  executor_->begin(program_);
  EXPECT_EQ(message_of<DeviceError>([&] { executor_->finish(); }), "the first");
}

TEST_F(Units, after_one_whose_compute_the_device_refused_run) {
  const int only = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  const std::vector<float> expected = in_order();
  device_.fail_next_compute();
  executor_->begin(program_);
  for (const auto& call :
       {std::function([&] { executor_->enter(only); }), std::function([&] { executor_->finish(); })}) {
    EXPECT_EQ(message_of<DeviceError>(call), "this compute was to fail");
  }
  executor_->begin(program_);
  compute(only);
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

TEST_F(Units, whose_hop_cannot_start_throw_why) {
  emit(Verb::kUpdate, {kHost0, kHost1});
  make_executor();
  updates_are_refused_ = true;
  executor_->begin(program_);
  EXPECT_EQ(message_of<DeviceError>([&] { executor_->finish(); }), "this update cannot start");
}

TEST_F(Units, whose_compute_cannot_be_waited_for_throw_why) {
  const int only = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  device_.fail_next_finish();
  executor_->begin(program_);
  compute(only);
  EXPECT_EQ(message_of<DeviceError>([&] { executor_->finish(); }), "this end of compute was to fail");
}

// What the device was given in the unit before has the same hops' numbers.
TEST_F(Units, after_one_whose_copy_failed_wait_for_their_own_copies) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int only = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  const std::vector<float> expected = in_order();
  device_.slow_down(LateDevice::Order::kUpload);
  device_.fail_next(CopyLane::kUpload);
  executor_->begin(program_, Executor::Writes::kKept, Executor::Calls::kNone);
  EXPECT_EQ(message_of<DeviceError>([&] { executor_->finish(); }), "this copy was to fail");
  device_.hold();
  executor_->begin(program_);
  compute(only);
  device_.wait_until_started({.upload = 2, .compute = 1});
  device_.let_go();
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

TEST_F(Units, after_one_that_was_given_up_compute) {
  const int only = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  const std::vector<float> expected = in_order();
  executor_->begin(program_);
  executor_->abandon();
  executor_->finish();
  executor_->begin(program_);
  compute(only);
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

// Between the question whether it is due and its release.
TEST_F(Units, given_up_as_a_compute_hop_starts_end_without_it) {
  emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  const std::vector<float> expected = in_order(0);
  when_starting_ = [&](const Hop&) { executor_->abandon(); };
  executor_->begin(program_);
  executor_->finish();
  EXPECT_EQ(contents(), expected);
}

TEST_F(Units, begun_in_another_or_left_unentered_or_too_long_are_a_programmers_error) {
  const int only = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  executor_->begin(program_);
  EXPECT_THROW(executor_->begin(program_), std::logic_error);
  compute(only);
  executor_->finish();
  EXPECT_THROW(executor_->leave(only), std::logic_error);
  Program longer;
  const Range cell = kHost0.range();
  for (int hop = 0; hop < 2; ++hop) longer.emit({.verb = Verb::kUpdate, .chunk = 0}, {}, {&cell, 1});
  longer.finish();
  EXPECT_THROW(executor_->begin(longer), std::logic_error);
}

TEST_F(Units, left_inside_a_compute_hop_end) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int inside = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  emit(Verb::kDownload, {kDevice1, kHost1});
  make_executor();
  executor_->begin(program_);
  executor_->enter(inside);
  executor_.reset();
}

TEST_F(Units, after_one_in_which_the_stores_queue_broke_are_a_programmers_error) {
  emit(Verb::kUpdate, {kHost0, kHost1});
  make_executor();
  faults_->poll_that_throws = faults_->polls;
  executor_->begin(program_);
  EXPECT_THROW(executor_->finish(), IoError);
  EXPECT_THROW(executor_->begin(program_), std::logic_error);
}

TEST_F(Units, that_rehearse_leave_the_records_as_they_were) {
  write_step(*store_, run_of_store_, 0);
  emit_swap(Verb::kSwapOut);
  make_executor();
  std::memset(host_.at(kRecordOffset), 0x5a, static_cast<size_t>(host_.bytes() - kRecordOffset));
  executor_->begin(program_, Executor::Writes::kRehearsed);
  executor_->finish();
  executor_.reset();
  expect_step(*store_, run_of_store_, 0);
  commit_now(*store_, run_of_store_.state(0));
  store_.reset();
  store_ = RecordStore::open(run_of_store_.geometry, run_of_store_.identity, {.folder = folder_.path()});
  expect_step(*store_, run_of_store_, 0);
}

TEST_F(Units, that_only_write_keep_the_drive_busy) { expect_busy_drive(Verb::kSwapOut); }
TEST_F(Units, that_only_read_keep_the_drive_busy) { expect_busy_drive(Verb::kSwapIn); }

// A compute hop is released and taken back before anybody is in it.
TEST_F(Units, after_one_that_was_given_up_count_no_time_of_its_compute) {
  emit(Verb::kUpdate, {kHost0, kHost1});
  emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  std::latch compute_starts(1);
  when_starting_ = [&](const Hop& hop) {
    if (hop.lane() == Lane::kCompute) compute_starts.count_down();
  };
  executor_->begin(program_);
  compute_starts.wait();
  executor_->abandon();
  executor_->finish();
  executor_->begin(program_, Executor::Writes::kKept, Executor::Calls::kNone);
  const UnitTimes& times = executor_->finish();
  EXPECT_GT(of(times.busy_ns, Lane::kUpdate), 0);
  EXPECT_EQ(of(times.busy_ns, Lane::kCompute), 0);
}

// The update starts once the executor has heard of the upload's end; compute, started with it, ends after that.
TEST_F(Units, count_compute_that_was_started_early_from_when_the_device_came_to_it) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int behind = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  emit(Verb::kUpdate, {kHost1, kHost0});
  make_executor();
  std::latch upload_is_heard_of(1);
  when_starting_ = [&](const Hop& hop) {
    if (hop.verb == Verb::kUpdate) upload_is_heard_of.count_down();
  };
  device_.hold();
  executor_->begin(program_);
  executor_->enter(behind);
  device_.launch([&] { upload_is_heard_of.wait(); });
  executor_->leave(behind);
  device_.wait_until_started({.upload = 1, .compute = 1});
  device_.let_go();
  EXPECT_GT(of(executor_->finish().busy_ns, Lane::kCompute), 0);
}

// Compute cannot have been under way while what it waits for was.
TEST_F(Units, told_of_compute_before_the_copy_that_it_waits_for_count_it_from_then_on) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int behind = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  make_executor();
  const std::vector<float> expected = in_order();
  const int64_t before_ns = now_ns();
  for (int unit = 0; unit < 2; ++unit) {  // the next one begins: nothing is counted as under way
    fill();
    device_.tell_late(LateDevice::Order::kUpload, LateDevice::Order::kCompute);
    executor_->begin(program_);
    compute(behind);
    const UnitTimes& times = executor_->finish();
    EXPECT_EQ(of(times.busy_ns, Lane::kCompute), 0);
    EXPECT_EQ(of(times.exposed_ns, Lane::kUpload), of(times.busy_ns, Lane::kUpload));
    EXPECT_EQ(contents(), expected);
  }
  const std::vector<Traced> events = traced();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "upload");
  EXPECT_EQ(events[1].name, "compute");
  for (const Traced& event : events) EXPECT_GE(event.begin_us, static_cast<double>(before_ns) / 1e3) << event.name;
}

TEST_F(Units, trace_the_hops_that_ran_in_them_alone_in_the_order_in_which_they_began) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int behind = emit(Verb::kCompute, {kDevice0, kDevice1, true});
  emit(Verb::kUpdate, {kHost1, kHost2, true});
  make_executor();
  const auto names = [this] {
    std::vector<std::string> all;
    for (const Traced& event : traced()) all.push_back(event.name);
    return all;
  };
  std::latch update_starts(1);
  when_starting_ = [&](const Hop& hop) {
    if (hop.verb == Verb::kUpdate) update_starts.count_down();
  };
  device_.hold();
  executor_->begin(program_);
  compute(behind);
  update_starts.wait();
  device_.let_go();
  executor_->finish();
  EXPECT_EQ(names(), (std::vector<std::string>{"upload", "update", "compute"}));

  actions_.back().due = false;
  executor_->begin(program_, Executor::Writes::kKept, Executor::Calls::kNone);
  executor_->finish();
  EXPECT_EQ(names(), std::vector<std::string>{"upload"});
}

TEST(InFlight, are_as_many_updates_as_the_engine_has_room_for) {
  EXPECT_EQ(in_flight_limit(Lane::kUpdate, 1), 1);
  EXPECT_EQ(in_flight_limit(Lane::kUpdate, 7), 7);
}

TEST_F(Units, expose_no_time_that_passes_beside_compute) {
  emit(Verb::kUpload, {kHost0, kDevice0});
  const int beside = emit(Verb::kCompute, {kDevice1, kDevice2, true});
  make_executor();
  device_.hold();
  executor_->begin(program_);
  compute(beside);
  device_.wait_until_started({.upload = 1, .compute = 1});
  device_.let_go();
  const UnitTimes& times = executor_->finish();
  EXPECT_LT(of(times.exposed_ns, Lane::kUpload), of(times.busy_ns, Lane::kUpload));
  EXPECT_EQ(of(times.exposed_ns, Lane::kCompute), 0);
}

}  // namespace
}  // namespace sluice
