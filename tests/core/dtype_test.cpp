#include "core/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

std::string planes(Precision precision, Group group) {
  std::string text;
  for (const Plane& plane : planes_of(precision, group)) {
    text += std::string(plane.name) + ":" + std::to_string(plane.bytes_per_element) + " ";
  }
  return text;
}

TEST(Planes, are_those_of_the_numerics_table) {
  EXPECT_EQ(planes(Precision::kBf16, Group::kWeights), "weights:2 ");
  EXPECT_EQ(planes(Precision::kFp16, Group::kWeights), "weights:2 ");
  EXPECT_EQ(planes(Precision::kFp32, Group::kWeights), "weights:4 ");
  EXPECT_EQ(planes(Precision::kBf16, Group::kState), "residual:2 moment1:4 moment2:4 ");
  EXPECT_EQ(planes(Precision::kFp16, Group::kState), "master:4 moment1:4 moment2:4 ");
  EXPECT_EQ(planes(Precision::kFp32, Group::kState), "moment1:4 moment2:4 ");
}

TEST(Planes, of_a_bf16_run_hold_12_bytes_a_parameter_and_no_fp32_master) {
  EXPECT_EQ(bytes_per_element(Precision::kBf16, Group::kWeights) + bytes_per_element(Precision::kBf16, Group::kState),
            12);
  EXPECT_EQ(bytes_per_element(Precision::kFp16, Group::kWeights) + bytes_per_element(Precision::kFp16, Group::kState),
            14);
  EXPECT_EQ(bytes_per_element(Precision::kFp32, Group::kWeights) + bytes_per_element(Precision::kFp32, Group::kState),
            12);
}

TEST(Planes, of_a_closed_gradient_are_as_wide_as_the_weights) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    EXPECT_EQ(bytes_per_element(precision, Group::kGradient), bytes_of(weights_dtype(precision)));
  }
}

TEST(Names, are_those_of_the_configuration) {
  EXPECT_EQ(name_of(Precision::kBf16), "bf16");
  EXPECT_EQ(name_of(DType::kFp16), "fp16");
  EXPECT_EQ(name_of(DType::kFp32), "fp32");
  EXPECT_EQ(name_of(Group::kWeights), "weights");
  EXPECT_EQ(name_of(Group::kState), "state");
  EXPECT_EQ(name_of(Group::kGradient), "gradient");
}

TEST(DType, an_optimizer_with_one_moment_has_a_plane_less_of_state) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
    const auto two = planes_of(precision, Group::kState);
    const auto one = planes_of({precision, Optimizer::kLion}, Group::kState);
    ASSERT_EQ(one.size() + 1, two.size());
    EXPECT_EQ(one.back().name, "moment1");
    EXPECT_EQ(bytes_per_element({precision, Optimizer::kSgd}, Group::kState) + 4,
              bytes_per_element(precision, Group::kState));
    EXPECT_EQ(bytes_per_element({precision, Optimizer::kSgd}, Group::kWeights),
              bytes_per_element(precision, Group::kWeights));
  }
}

TEST(DType, moments_in_bf16_take_8_bytes_a_parameter_with_bf16_weights) {
  const RecordFormat format(Precision::kBf16, Optimizer::kAdam, DType::kBf16);
  EXPECT_EQ(bytes_per_element(format, Group::kWeights) + bytes_per_element(format, Group::kState), 8);
  EXPECT_EQ(bytes_per_element({Precision::kFp16, Optimizer::kAdam, DType::kBf16}, Group::kState), 8);
  EXPECT_EQ(bytes_per_element({Precision::kFp32, Optimizer::kAdam, DType::kBf16}, Group::kState), 4);
  EXPECT_EQ(bytes_per_element({Precision::kBf16, Optimizer::kLion, DType::kBf16}, Group::kState), 4);
}

}  // namespace
}  // namespace sluice
