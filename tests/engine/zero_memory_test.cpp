// Against the figures that the paper prints.
#include "engine/zero_memory.h"

#include <gtest/gtest.h>

namespace sluice::testing {
namespace {

TEST(ZeroMemory, of_7_5_billion_parameters_on_64_devices_is_what_figure_1_says) {
  const ZeroModel model{.parameters = 7'500'000'000, .ranks = 64};
  EXPECT_NEAR(bytes_per_device(model, ZeroStage::kNone) / 1e9, 120, 0.05);
  EXPECT_NEAR(bytes_per_device(model, ZeroStage::kState) / 1e9, 31.4, 0.05);
  EXPECT_NEAR(bytes_per_device(model, ZeroStage::kStateGradients) / 1e9, 16.6, 0.05);
  EXPECT_NEAR(bytes_per_device(model, ZeroStage::kStateGradientsWeights) / 1e9, 1.9, 0.05);
}

TEST(ZeroMemory, of_one_device_is_the_same_at_every_stage) {
  for (const ZeroStage stage : {ZeroStage::kNone, ZeroStage::kState, ZeroStage::kStateGradientsWeights}) {
    EXPECT_EQ(bytes_per_device({.parameters = 1000, .ranks = 1}, stage), 16000);
  }
}

}  // namespace
}  // namespace sluice::testing
