// What a unit leaves for the next call and for the next unit: errors, records, times.
#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <stdexcept>

#include "tests/offload/executor_fixture.h"

namespace sluice {
namespace {

class Units : public Executors {
 protected:
  static constexpr Cell kHost0{Place::kHost, 0}, kHost1{Place::kHost, 1}, kHost2{Place::kHost, 2};
  static constexpr Cell kDevice0{Place::kDevice, 0}, kDevice1{Place::kDevice, 1}, kDevice2{Place::kDevice, 2};
  static int64_t of(const std::array<int64_t, kLaneCount>& times, Lane lane) { return times[static_cast<int>(lane)]; }
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
  emit_swap_out();
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

TEST_F(Units, that_only_write_keep_the_drive_busy) {
  write_step(*store_, run_of_store_, 0);
  emit_swap_out();
  make_executor();
  executor_->begin(program_, Executor::Writes::kRehearsed);
  const UnitTimes& times = executor_->finish();
  EXPECT_GT(times.drive_busy_ns, 0);
  EXPECT_EQ(times.drive_busy_ns, of(times.busy_ns, Lane::kWrite));
}

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
