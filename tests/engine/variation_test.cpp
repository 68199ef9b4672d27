// How bytes move moves no bits: one thing varied at a time, all against one reference.
#include <memory>

#include "tests/engine/placement_fixture.h"
#include "tests/fakes/io_backends.h"

namespace sluice::testing {
namespace {

TEST_F(Variation, chunk_sizes_that_do_not_divide_change_no_bit) {
  for (int64_t chunk : {128, 129, 200, 333, 1000, 100000}) {
    expect_same([chunk](EngineOptions& o) { o.plan.chunk_elements = chunk; });
    expect_same([chunk](EngineOptions& o) {
      o.plan.chunk_elements = chunk;
      all_on_nvme(o);
    });
  }
}

TEST_F(Variation, shares_of_homes_change_no_bit) {
  expect_same([](EngineOptions& o) {
    o.plan.placement = {.weights = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}},
                        .state = {{HomeKind::kNvme, 0.3}, {HomeKind::kHost, 0.7}},
                        .gradient = {{HomeKind::kHost, 0.3}, {HomeKind::kDevice, 0.3}, {HomeKind::kNvme, 0.4}},
                        .activations = {{HomeKind::kDevice, 0.25}, {HomeKind::kNvme, 0.5}, {HomeKind::kHost, 0.25}}};
  });
  for (const UpdateMode update : {UpdateMode::kDeferred, UpdateMode::kSpeculative, UpdateMode::kReplay}) {
    for (const HomeShares& state :
         {HomeShares{{HomeKind::kDevice, 0.3}, {HomeKind::kHost, 0.3}, {HomeKind::kNvme, 0.4}},
          HomeShares{{HomeKind::kNvme, 0.5}, {HomeKind::kDevice, 0.5}}}) {
      expect_same([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.update = update;
      });
      expect_same([&](EngineOptions& o) {
        o.plan.placement.state = state;
        o.plan.placement.weights = {{HomeKind::kHostAndDevice, 0.5}, {HomeKind::kNvmeAndDevice, 0.5}};
        if (update != UpdateMode::kReplay) o.plan.placement.gradient = {{HomeKind::kDevice, 1}};
        o.plan.update = update;
      });
    }
  }
}

TEST_F(Variation, backends_queue_depths_and_update_threads_change_no_bit) {
  for (const IoBackend backend : backends_here()) {
    for (int depth : {1, 2, 64}) {
      for (int threads : {1, 2}) {
        expect_same([&](EngineOptions& o) {
          o.store.queue.backend = backend;
          o.plan.io_depth = depth;
          o.update_threads = threads;
          if (depth != 2) all_on_nvme(o);
        });
      }
    }
  }
}

TEST_F(Variation, drives_and_their_weights_change_no_bit) {
  for (const std::vector<uint32_t>& weights : {std::vector<uint32_t>{1, 1}, {5, 1, 3}}) {
    TempFolder further;
    expect_same([&](EngineOptions& o) {
      for (size_t drive = 1; drive < weights.size(); ++drive)
        o.store.more_folders.push_back(further.path() / std::to_string(drive));
      o.store.drive_weights = weights;
      all_on_nvme(o);
    });
  }
}

TEST_F(Variation, a_probe_of_the_drive_changes_no_bit_and_is_logged) {
  auto text = std::make_shared<std::string>();
  expect_same([&](EngineOptions& o) {
    o.probe_io = ProbeIo::kYes;
    o.log = [text](LogLevel, const std::string& line) { *text += line + "\n"; };
    o.plan.placement.weights = o.plan.placement.state = {{HomeKind::kNvme, 1}};
  });
  EXPECT_NE(text->find("I/O, the best of"), std::string::npos) << *text;
}

TEST_F(Variation, commit_intervals_change_no_bit) {
  for (int interval : {1, 2, 3, 10}) {
    for (HomeKind state : {HomeKind::kDevice, HomeKind::kHost, HomeKind::kNvme}) {
      expect_same([&](EngineOptions& o) {
        o.plan.commit_interval = interval;
        o.plan.placement.state = {{state, 1}};
        if (state == HomeKind::kDevice) return;
        o.plan.placement.weights = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
      });
    }
  }
}

TEST_F(Variation, the_smallest_legal_budgets_finish_and_change_no_bit) {
  const EngineOptions generous = [this] {
    TempFolder folder;
    return engine_options(folder, reference_);
  }();
  const Planner planner(model_, generous.plan);
  const auto device = planner.smallest_device(generous.plan.host_bytes);
  const auto host = planner.smallest_host(generous.plan.device_bytes);
  ASSERT_TRUE(device && host);
  EXPECT_LT(*device, generous.plan.device_bytes);
  EXPECT_LT(*host, generous.plan.host_bytes);
  expect_same([&](EngineOptions& o) { o.plan.device_bytes = *device; });
  expect_same([&](EngineOptions& o) { o.plan.host_bytes = *host; });
  const auto host_beside = planner.smallest_host(*device);
  ASSERT_TRUE(host_beside);
  expect_same([&](EngineOptions& o) {
    o.plan.device_bytes = *device;
    o.plan.host_bytes = *host_beside;
  });
  expect_same([&](EngineOptions& o) {
    all_on_nvme(o);
    const Planner forced(model_, o.plan);
    const int64_t least = forced.smallest_host(o.plan.device_bytes).value();
    o.plan.device_bytes = forced.smallest_device(least).value();
    o.plan.host_bytes = least;
  });
  const HomeShares on_device = {{HomeKind::kDevice, 1}};
  expect_same([&](EngineOptions& o) {
    o.plan.placement = {.state = on_device, .activations = {{HomeKind::kNvme, 1}}};
    const Planner forced(model_, o.plan);
    const int64_t least = forced.smallest_device(o.plan.host_bytes).value();
    o.plan.host_bytes = forced.smallest_host(least).value();
    o.plan.device_bytes = least;
    EXPECT_FALSE(find_plan(model_,
                           [&] {
                             PlanOptions less = o.plan;
                             --less.device_bytes;
                             return less;
                           }())
                     .has_value());
  });
  EXPECT_THROW(expect_same([&](EngineOptions& o) { o.plan.device_bytes = *device - 1; }), ConfigError);
  EXPECT_THROW(expect_same([&](EngineOptions& o) { o.plan.host_bytes = *host - 1; }), ConfigError);
}

}  // namespace
}  // namespace sluice::testing
