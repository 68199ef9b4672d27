// Values that no machine has.
#include "engine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/errors.h"
#include "tests/engine/machines.h"
#include "tests/fakes/message_of.h"

namespace sluice::testing {
namespace {

TEST(Machine, with_a_value_that_none_can_have_is_refused_by_the_values_name) {
  EXPECT_NO_THROW(endless().validate());
  const auto refusal_of = [](auto field, auto value) {
    MachineSpeeds machine = endless();
    machine.*field = value;
    return message_of<ConfigError>([&] { machine.validate(); });
  };
  using Speeds = MachineSpeeds;
  const double endless_speed = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal_of(&Speeds::mixed_gb_per_s, 0),
              ::testing::HasSubstr("mixed_gb_per_s is 0: allowed is a number above 0"));
  EXPECT_THAT(refusal_of(&Speeds::read_gb_per_s, endless_speed), ::testing::HasSubstr("read_gb_per_s is inf"));
  EXPECT_THAT(refusal_of(&Speeds::write_gb_per_s, std::nan("")), ::testing::HasSubstr("write_gb_per_s is nan"));
  EXPECT_THAT(refusal_of(&Speeds::hop_us, -1), ::testing::HasSubstr("hop_us is -1: allowed is a number of 0 or more"));
  EXPECT_THAT(refusal_of(&Speeds::commit_ms, endless_speed), ::testing::HasSubstr("commit_ms is inf"));
  EXPECT_THAT(refusal_of(&Speeds::copy_cores, 1.5),
              ::testing::HasSubstr("copy_cores is 1.5: allowed is up to its cores, 1"));
  EXPECT_THAT(refusal_of(&Speeds::drives, -1), ::testing::HasSubstr("drives is -1: allowed is 0 or more"));
  EXPECT_THAT(refusal_of(&Speeds::update_threads, 0),
              ::testing::HasSubstr("update_threads is 0: allowed is 1 or more"));
}

}  // namespace
}  // namespace sluice::testing
