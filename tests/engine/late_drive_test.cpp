// Drives that are late with all they are asked for, reads or writes: what a step does not order shows.
#include "tests/fakes/late_drive.h"

#include <gtest/gtest.h>

#include "tests/engine/update_modes_fixture.h"

namespace sluice::testing {
namespace {

using enum HomeKind;

class LateDrives : public UpdateModes, public ::testing::WithParamInterface<Late> {};

TEST_P(LateDrives, change_no_bit_wherever_records_live) {
  reference_.max_norm = median_norm(model_, reference_);
  const auto kept_back = std::make_shared<std::atomic<size_t>>(0);
  expect_reference_wherever_bytes_live(
      [&](EngineOptions& options) { options.store.make_queue = late_drive_factory(GetParam(), 7, kept_back); });
  EXPECT_GT(*kept_back, 2u) << "no order was changed";
}

TEST_P(LateDrives, change_no_bit_where_commits_are_rare_and_memory_is_short) {
  reference_.max_norm = median_norm(model_, reference_);
  choose(UpdateMode::kDeferred);
  for (const HomeKind weights : {kHost, kNvme, kAuto}) {
    for (const HomeKind state : {kHost, kNvme, kDevice}) {
      if (state == kDevice && weights != kAuto) continue;  // it has them there
      expect_reference([&](EngineOptions& options) {
        options.plan.placement = {.weights = {{weights, 1}}, .state = {{state, 1}}};
        options.plan.commit_interval = 3;
        options.plan.host_bytes = Planner(model_, options.plan).smallest_host(options.plan.device_bytes).value();
        options.store.make_queue = late_drive_factory(GetParam(), 3);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(with, LateDrives, ::testing::Values(Late::kReads, Late::kWrites),
                         [](const auto& late) { return late.param == Late::kReads ? "reads" : "writes"; });

}  // namespace
}  // namespace sluice::testing
