#include "offload/device_wait.h"

#include <gtest/gtest.h>

#include "core/errors.h"
#include "tests/fakes/late_device.h"
#include "tests/fakes/message_of.h"

namespace sluice {
namespace {

TEST(DeviceWaits, throw_what_compute_ended_with_and_that_once) {
  LateDevice device(4096);
  DeviceWait wait(device);
  device.fail_next_end_of_compute();
  EXPECT_EQ(message_of<DeviceError>([&] { wait.for_compute(); }), "this compute was to fail");
  bool computed = false;
  device.launch([&] { computed = true; });
  wait.for_compute();
  EXPECT_TRUE(computed);
}

}  // namespace
}  // namespace sluice
