#include "app/endurance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "swap/record_store.h"
#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr EnduranceConfig kAsked{.terabytes_written = 600, .days = 365};
constexpr int64_t kGigabyte = 1'000'000'000;

WrittenDrives one_drive() { return {.list = {{.wear = {.device = "nvme0n1", .reason = "not asked"}}}}; }

TEST(EnduranceOf, a_drive_follows_from_bytes_a_step_and_seconds_a_step) {
  // 8.64 TB a day: 69.4 days.
  const Endurance endurance = endurance_of(kAsked, {.bytes_per_step = kGigabyte, .step_seconds = 10}, one_drive());
  EXPECT_NEAR(*endurance.bytes_per_day, 8.64e12, 1);
  EXPECT_NEAR(*endurance.lasts_days, 600 / 8.64, 1e-6);
  EXPECT_NEAR(*endurance.lasts_steps, 600'000, 1e-6);
  EXPECT_TRUE(endurance.is_too_short);
  EXPECT_FALSE(endurance_of(kAsked, {.bytes_per_step = kGigabyte, .step_seconds = 60}, one_drive()).is_too_short);
}

// A step a day: 600 days.
TEST(EnduranceOf, a_drive_that_lasts_as_long_as_asked_is_enough_and_its_words_are_days_up_to_two_years) {
  const WriteRate rate{.bytes_per_step = 1000 * kGigabyte, .step_seconds = 86400};
  EXPECT_FALSE(endurance_of({.terabytes_written = 600, .days = 600}, rate, one_drive()).is_too_short);
  const EnduranceConfig longer{.terabytes_written = 600, .days = 601};
  EXPECT_THAT(warning_of(longer, rate, one_drive()), HasSubstr("the drive lasts 600 days at this rate"));
  WrittenDrives drive = one_drive();
  drive.shares = WrittenDrives::Shares::kTakenAsEqual;
  EXPECT_THAT(words_of(longer, rate, drive),
              AllOf(HasSubstr("600 TB last 600 days"), testing::Not(HasSubstr("equally fast"))));
}

TEST(EnduranceOf, steps_whose_updates_are_undone_says_what_they_write_beside) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10, .undone_bytes = 3 << 20};
  EXPECT_THAT(words_of({}, rate, one_drive()),
              HasSubstr("; 3.0 MiB more in a step whose updates in the backward are undone\n"));
}

TEST(EnduranceOf, a_drive_that_has_taken_more_than_its_rating_is_over) {
  const WrittenDrives drives{
      .list = {{.wear = {.device = "nvme0n1", .written_bytes = 700'000 * kGigabyte, .used_percent = 117}}}};
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10};
  const Endurance endurance = endurance_of(kAsked, rate, drives);
  EXPECT_EQ(endurance.lasts_steps, 0);
  EXPECT_EQ(endurance.lasts_days, 0);
  EXPECT_TRUE(endurance.is_too_short);
  EXPECT_THAT(words_of(kAsked, rate, drives), HasSubstr("last less than a day"));
}

// The one that takes most is new; the one that has taken most takes little; a third one ends before either.
TEST(EnduranceOf, several_drives_is_that_of_the_one_whose_own_rating_and_own_share_end_first) {
  constexpr int64_t kTerabyte = 1000 * kGigabyte;
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10};
  const WrittenDrives drives{
      .list = {{.wear = {.device = "nvme0n1", .written_bytes = 0, .used_percent = 0}, .share = 0.5},
               {.wear = {.device = "nvme1n1", .written_bytes = 500 * kTerabyte, .used_percent = 83}, .share = 0.1},
               {.wear = {.device = "nvme2n1", .written_bytes = 300 * kTerabyte, .used_percent = 50}, .share = 0.4}}};
  const Endurance endurance = endurance_of(kAsked, rate, drives);
  EXPECT_NEAR(*endurance.lasts_days, 300 / (0.4 * 8.64), 1e-6);
  EXPECT_EQ(endurance.first_worn, 2u);
  EXPECT_THAT(words_of(kAsked, rate, drives),
              AllOf(HasSubstr("8.64 TB a day"), HasSubstr("10 % of that; 500 TB written in its life, 83 %"),
                    HasSubstr("600 TB last 87 days at this rate, nvme2n1 first")));
  EXPECT_THAT(warning_of(kAsked, rate, drives), AllOf(HasSubstr("nvme2n1 lasts 87 days"), HasSubstr("endurance.days")));
}

TEST(EnduranceOf, folders_on_one_device_is_that_of_what_all_of_them_take_and_names_it_once) {
  const DriveWear used{.device = "nvme0n1", .written_bytes = 100'000 * kGigabyte, .used_percent = 17};
  const DriveWear other{.device = "vda", .reason = "no NVMe drive, so there is no counter of its own to show"};
  const WrittenDrives drives{.list = by_device(std::array{used, other, used}, std::array{300u, 500u, 200u})};
  ASSERT_EQ(drives.list.size(), 2u);
  EXPECT_DOUBLE_EQ(drives.list[0].share, 0.5);
  EXPECT_DOUBLE_EQ(drives.list[1].share, 0.5);
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10};
  EXPECT_NEAR(*endurance_of(kAsked, rate, drives).lasts_days, 500 / 4.32, 1e-6);
  const std::string words = words_of(kAsked, rate, drives);
  EXPECT_THAT(
      words,
      AllOf(HasSubstr("nvme0n1           50 % of that; 100 TB"),
            HasSubstr("vda               50 % of that; no NVMe drive, so there is no counter of its own to show\n")));
  EXPECT_EQ(words.find("nvme0n1  "), words.rfind("nvme0n1  ")) << words;
}

TEST(EnduranceOf, a_drive_whose_counter_cannot_be_read_says_why) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 10};
  EXPECT_THAT(words_of(kAsked, rate, one_drive()), HasSubstr("nvme0n1           not asked\n"));
  const WrittenDrives nameless{.list = {{.wear = {.reason = "no block device lies behind it"}}}};
  EXPECT_THAT(words_of(kAsked, rate, nameless), HasSubstr("drive             no block device lies behind it\n"));
}

TEST(EnduranceOf, folders_whose_device_is_not_known_is_by_file_system) {
  const std::array<DriveWear, 3> folders = {{{.file_system = 1}, {.file_system = 2}, {.file_system = 1}}};
  const std::vector<WrittenDrive> drives = by_device(folders, std::array{1u, 1u, 2u});
  ASSERT_EQ(drives.size(), 2u);
  EXPECT_DOUBLE_EQ(drives[0].share, 0.75);
}

TEST(DrivesIn, have_the_shares_of_the_store_that_is_there_and_equal_ones_before) {
  const TempFolder folder;
  const TestRun run;
  const std::vector<std::filesystem::path> folders = {folder.path() / "a", folder.path() / "b"};
  EXPECT_EQ(drives_in(folders).shares, WrittenDrives::Shares::kTakenAsEqual);
  const auto store = RecordStore::create(run.geometry, run.identity,
                                         {.folder = folders[0], .more_folders = {folders[1]}, .drive_weights = {3, 1}});
  const WrittenDrives drives = drives_in(folders);
  EXPECT_EQ(drives.shares, WrittenDrives::Shares::kOfStore);
  ASSERT_EQ(drives.list.size(), 1u) << "both folders are on one device";
  EXPECT_DOUBLE_EQ(drives.list[0].share, 1);
}

TEST(EnduranceOf, a_step_whose_time_is_not_known_is_told_in_steps) {
  const WriteRate rate{.bytes_per_step = kGigabyte};
  EXPECT_FALSE(endurance_of(kAsked, rate, one_drive()).lasts_days.has_value());
  EXPECT_THAT(words_of(kAsked, rate, one_drive()), HasSubstr("600 TB last 6e+05 steps: 365 days of steps of 52.6 s"));
  EXPECT_EQ(warning_of(kAsked, rate, one_drive()), "");
}

TEST(EnduranceOf, long_steps_is_told_with_their_minutes_and_hours) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 3909};
  EXPECT_THAT(words_of({}, rate, one_drive()), HasSubstr("a day at 3.91e+03 s (1:05:09 h) a step"));
}

TEST(RateOf, a_run_is_what_its_steps_wrote_and_took_with_a_commit_among_them) {
  const WriteRate rate =
      rate_of({.steps = 10, .bytes = 30, .seconds = 5, .commit_interval = 10, .planned_bytes_per_step = 7}).value();
  EXPECT_EQ(rate.bytes_per_step, 3);
  EXPECT_EQ(rate.step_seconds, 0.5);
}

// Of 9 steps that would have no commit, the last has one.
TEST(RateOf, fewer_steps_than_lie_between_commits_is_what_the_plan_says) {
  const WriteRate rate =
      rate_of({.steps = 9, .bytes = 900, .seconds = 3, .commit_interval = 10, .planned_bytes_per_step = 7}).value();
  EXPECT_EQ(rate.bytes_per_step, 7);
  EXPECT_NEAR(rate.step_seconds, 3.0 / 9, 1e-12);
}

TEST(RateOf, no_steps_is_nothing_and_of_steps_in_no_time_no_day_is_told) {
  EXPECT_FALSE(rate_of({.steps = 0, .bytes = 900, .seconds = 3, .planned_bytes_per_step = 7}).has_value());
  const WriteRate rate = rate_of({.steps = 2, .bytes = 2 * kGigabyte, .seconds = 0}).value();
  const Endurance endurance = endurance_of(kAsked, rate, one_drive());
  EXPECT_FALSE(endurance.bytes_per_day.has_value());
  EXPECT_FALSE(endurance.lasts_days.has_value());
  EXPECT_FALSE(endurance.is_too_short);
  EXPECT_THAT(words_of(kAsked, rate, one_drive()),
              AllOf(HasSubstr("600 TB last 6e+05 steps"), testing::Not(HasSubstr("a day"))));
}

TEST(EnduranceOf, nothing_asked_warns_of_nothing) {
  const WriteRate rate{.bytes_per_step = kGigabyte, .step_seconds = 0.001};
  EXPECT_EQ(warning_of({}, rate, one_drive()), "");
  EXPECT_THAT(words_of({}, rate, one_drive()), testing::Not(HasSubstr("endurance")));
}

TEST(EnduranceOf, a_drive_that_is_hardly_written_to_is_told_without_a_number_of_many_digits) {
  const WriteRate rate{.bytes_per_step = 0, .step_seconds = 1};
  EXPECT_THAT(words_of(kAsked, rate, one_drive()), HasSubstr("600 TB last more than 1000 years"));
}

}  // namespace
}  // namespace sluice
