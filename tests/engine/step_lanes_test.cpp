// What the lanes of a unit did, as a step tells it.
#include "engine/step_lanes.h"

#include <gtest/gtest.h>

#include "offload/executor.h"

namespace sluice::testing {
namespace {

// Every figure another one, none of them 0.
UnitTimes made_up_times() {
  UnitTimes times{.drive_busy_ns = 9'000'000, .elapsed_ns = 1};
  for (size_t lane = 0; lane < kLaneCount; ++lane) {
    const auto number = static_cast<int64_t>(lane) + 1;
    times.busy_ns[lane] = number * 2'000'000;
    times.exposed_ns[lane] = number * 500'000;
    times.bytes[lane] = number * 1000;
    for (size_t group = 0; group < kGroupCount; ++group)
      times.group_bytes[lane][group] = number * 10 + static_cast<int64_t>(group);
  }
  return times;
}

void expect_lanes(const StepLanes& lanes, int64_t times) {
  EXPECT_EQ(lanes.drive_busy_ms, 9.0 * static_cast<double>(times));
  for (size_t lane = 0; lane < kLaneCount; ++lane) {
    const auto number = static_cast<int64_t>(lane) + 1;
    const LaneUse& use = lanes[static_cast<Lane>(lane)];
    EXPECT_EQ(use.busy_ms, 2.0 * static_cast<double>(number * times)) << lane;
    EXPECT_EQ(use.exposed_ms, 0.5 * static_cast<double>(number * times)) << lane;
    EXPECT_EQ(use.bytes, 1000 * number * times) << lane;
    for (size_t group = 0; group < kGroupCount; ++group) {
      EXPECT_EQ(lanes.bytes(static_cast<Lane>(lane), static_cast<Group>(group)),
                (number * 10 + static_cast<int64_t>(group)) * times)
          << lane;
    }
  }
}

TEST(StepLanes, are_a_units_times_in_milliseconds_and_its_bytes) { expect_lanes(lanes_of(made_up_times()), 1); }

TEST(StepLanes, of_a_step_that_runs_again_are_the_sums_of_its_runs) {
  StepLanes lanes = lanes_of(made_up_times());
  lanes += lanes_of(made_up_times());
  lanes += lanes_of(made_up_times());
  expect_lanes(lanes, 3);
}

}  // namespace
}  // namespace sluice::testing
