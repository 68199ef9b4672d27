// The engine on a device that is as asynchronous as a GPU: what is called for is done later, in three orders that know
// of each other only what they are told. What a step does not order shows, without a GPU.
#include "tests/fakes/late_device.h"

#include <gtest/gtest.h>

#include "tests/engine/update_modes_fixture.h"

namespace sluice::testing {
namespace {

using enum HomeKind;

// Makes the engine's device, and keeps an eye on it.
class LateDevices : public UpdateModes, public ::testing::WithParamInterface<LateDevice::Order> {
 protected:
  LateDevices() {
    launch_ = [this](std::function<void()> work) { device_->launch(std::move(work)); };
  }
  void take_device(EngineOptions& options, std::optional<LateDevice::Order> slow = {}) {
    options.make_device = [this, slow](DeviceKind, int64_t bytes, AdamKernel kernel) {
      auto device = std::make_unique<LateDevice>(bytes, kernel);
      if (slow) device->slow_down(*slow);
      device_ = device.get();
      return device;
    };
  }

  LateDevice* device_ = nullptr;  // the engine's
};

TEST_P(LateDevices, change_no_bit_wherever_bytes_live) {
  reference_.max_norm = median_norm(model_, reference_);
  expect_reference_wherever_bytes_live([this](EngineOptions& options) { take_device(options, GetParam()); });
}

TEST_P(LateDevices, change_no_bit_where_memory_is_short_and_graphs_are_kept) {
  reference_.max_norm = median_norm(model_, reference_);
  choose(UpdateMode::kDeferred);
  for (const HomeKind home : {kHost, kNvme}) {
    expect_reference([&](EngineOptions& options) {
      put_records(options.plan, home);
      options.plan.commit_interval = 3;
      options.plan.device_bytes = Planner(model_, options.plan).smallest_device(options.plan.host_bytes).value();
      take_device(options, GetParam());
    });
  }
  expect_reference([&](EngineOptions& options) {
    options.plan.graph_bytes.assign(model_.visits.size(), 512);
    take_device(options, GetParam());
  });
}

using enum LateDevice::Order;
std::string name_of_order(const ::testing::TestParamInfo<LateDevice::Order>& order) {
  return order.param == kUpload ? "uploads" : order.param == kDownload ? "downloads" : "compute";
}
INSTANTIATE_TEST_SUITE_P(slow_with, LateDevices, ::testing::Values(kUpload, kDownload, kCompute), name_of_order);

class FailingDevice : public LateDevices {};

// The error is the caller's, inside a turn; the unit is still under way then.
TEST_F(FailingDevice, leaves_an_engine_that_is_at_rest_and_a_store_with_the_step_before) {
  for (const int64_t nth : {0, 1}) {
    EngineOptions with = options();
    with.plan.commit_interval = 1;
    with.trace_path = folder_.path() / "trace.json";
    take_device(with);
    int64_t number = 1;
    const Compute compute = toy_compute(model_, number, launch_);
    {
      Engine engine(model_, with, toy_source());
      for (; number <= 2; ++number) engine.train_step(reference_.learning_rate, compute);
      device_->fail_rounding(nth);
      EXPECT_THROW(engine.train_step(reference_.learning_rate, compute), DeviceError) << nth;
      EXPECT_EQ(engine.committed().step, 2);
      engine.close_trace();
      EXPECT_THROW(engine.drain(), DeviceError);
    }
    with.open = OpenMode::kOpen;
    Engine engine(model_, with, toy_source());
    const RunRecord rest = train_engine(engine, model_, reference_, launch_),
                    whole = train_reference(model_, reference_);
    EXPECT_EQ(rest.state_crc32c, whole.state_crc32c) << nth;
    EXPECT_EQ(rest.weights_crc32c, whole.weights_crc32c) << nth;
  }
}

}  // namespace
}  // namespace sluice::testing
