// Values that no machine has.
#include "engine/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>

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

TEST(Machine, may_lack_latencies_and_what_is_not_said_but_no_speed_that_every_step_needs) {
  const std::set<std::string_view> may_be_none = {"summed_ns_per_element",
                                                  "out_of_place_ns_per_element",
                                                  "device_update_gb_per_s",
                                                  "compute_tflop_per_s",
                                                  "commit_ms",
                                                  "transfer_us",
                                                  "read_request_us",
                                                  "write_request_us",
                                                  "hop_us",
                                                  "compute_cores",
                                                  "copy_cores"};
  for (const MachineField& field : machine_fields()) {
    const auto refusal_of = [&field](double value) {
      MachineSpeeds machine = endless();
      machine.*field.value = value;
      return message_or<ConfigError>("taken", [&] { machine.validate(); });
    };
    const std::string refusal = refusal_of(0);
    EXPECT_EQ(refusal == "taken", may_be_none.contains(field.name)) << field.name << ": " << refusal;
    EXPECT_THAT(refusal_of(std::numeric_limits<double>::infinity()), ::testing::HasSubstr(std::string(field.name)));
  }
}

TEST(Machine, has_no_more_cores_for_compute_than_there_are) {
  MachineSpeeds machine = endless();
  machine.cores = machine.compute_cores = machine.copy_cores = 4;
  EXPECT_NO_THROW(machine.validate());
  machine.compute_cores = 4.5;
  EXPECT_THAT(message_of<ConfigError>([&] { machine.validate(); }),
              ::testing::HasSubstr("compute_cores is 4.5: allowed is up to its cores, 4"));
}

TEST(Machine, whose_drives_are_faster_is_so_either_way_and_both_ways) {
  MachineSpeeds machine = endless();
  machine.read_gb_per_s = 3, machine.write_gb_per_s = 2, machine.mixed_gb_per_s = 4;
  machine.scale_drives(2.5);
  EXPECT_EQ(machine.read_gb_per_s, 7.5);
  EXPECT_EQ(machine.write_gb_per_s, 5);
  EXPECT_EQ(machine.mixed_gb_per_s, 10);
}

}  // namespace
}  // namespace sluice::testing
