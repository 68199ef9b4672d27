// The devices that contract tests run over. One that cannot be had here is skipped with its reason.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "offload/device.h"
#include "offload/gpu.h"

namespace sluice::testing {

class OverDevices : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCuda && !why_no_gpu().empty()) GTEST_SKIP() << "no GPU: " << why_no_gpu();
  }
};

inline auto every_device() { return ::testing::Values(DeviceKind::kHost, DeviceKind::kAuto, DeviceKind::kCuda); }
inline std::string name_of_device(const ::testing::TestParamInfo<DeviceKind>& kind) {
  return kind.param == DeviceKind::kHost ? "host" : kind.param == DeviceKind::kCuda ? "cuda" : "auto";
}

}  // namespace sluice::testing
