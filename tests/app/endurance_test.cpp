#include "app/endurance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr EnduranceConfig kAsked{.terabytes_written = 600, .days = 365};
constexpr int64_t kGigabyte = 1'000'000'000;

TEST(EnduranceOf, a_drive_follows_from_bytes_a_step_and_seconds_a_step) {
  // 8.64 TB a day: 69.4 days.
  const Endurance endurance = endurance_of(kAsked, {.bytes_per_step = kGigabyte, .step_seconds = 10}, {});
  EXPECT_NEAR(*endurance.bytes_per_day, 8.64e12, 1);
  EXPECT_NEAR(*endurance.lasts_days, 600 / 8.64, 1e-6);
  EXPECT_NEAR(*endurance.lasts_steps, 600'000, 1e-6);
  EXPECT_TRUE(endurance.is_too_short);
  EXPECT_FALSE(endurance_of(kAsked, {.bytes_per_step = kGigabyte, .step_seconds = 60}, {}).is_too_short);
}

TEST(EnduranceOf, several_drives_is_that_of_the_one_that_takes_most_and_has_taken_most) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10, .largest_share = 0.5};
  const std::vector<DriveWear> worn = {{.device = "nvme0n1", .written_bytes = 100'000 * kGigabyte, .used_percent = 17},
                                       {.device = "vda", .reason = "vda is no NVMe drive"}};
  EXPECT_NEAR(*endurance_of(kAsked, rate, worn).lasts_days, 500 / 4.32, 1e-6);
  EXPECT_THAT(words_of(kAsked, rate, worn),
              AllOf(HasSubstr("8.64 TB a day"), HasSubstr("nvme0n1"), HasSubstr("100 TB written in its life, 17 %"),
                    HasSubstr("vda is no NVMe drive"), HasSubstr("600 TB last 116 days")));
  EXPECT_THAT(warning_of(kAsked, rate, worn), AllOf(HasSubstr("116 days"), HasSubstr("endurance.days")));
}

TEST(EnduranceOf, a_step_whose_time_is_not_known_is_told_in_steps) {
  const WriteRate rate{.bytes_per_step = kGigabyte};
  EXPECT_FALSE(endurance_of(kAsked, rate, {}).lasts_days.has_value());
  EXPECT_THAT(words_of(kAsked, rate, {}), HasSubstr("600 TB last 6e+05 steps: 365 days of steps of 52.6 s"));
  EXPECT_EQ(warning_of(kAsked, rate, {}), "");
}

TEST(EnduranceOf, nothing_asked_warns_of_nothing) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 0.001};
  EXPECT_EQ(warning_of({}, rate, {}), "");
  EXPECT_THAT(words_of({}, rate, {}), testing::Not(HasSubstr("endurance")));
}

}  // namespace
}  // namespace sluice
