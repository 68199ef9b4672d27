// The executor over a device that does nothing when it is called, as a GPU does: what is ordered where, and that no
// order lets anybody see bytes too early or too late.
#include "offload/executor.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "tests/offload/executor_fixture.h"

namespace sluice {
namespace {

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

TEST_F(RandomPrograms, with_compute_that_the_device_refuses_throw_its_error) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    make_program(seed);
    executor_->begin(program_);
    const int next = compute_some(seed % 5);
    device_.fail_next_compute();
    EXPECT_EQ(message_of<DeviceError>([&] { executor_->enter(next); }), "this compute was to fail") << seed;
    EXPECT_EQ(message_of<DeviceError>([&] { executor_->finish(); }), "this compute was to fail") << seed;
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
