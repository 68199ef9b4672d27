#include "swap/drive_wear.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class Wear : public testing::Test {
 protected:
  // As the kernel shows the drive that the folder lies on: a partition of `drive`.
  void show_drive(const std::string& drive) { show_below(partition_of(drive)); }
  // ... or a volume.
  void show_below(const std::filesystem::path& device) {
    struct stat status {};
    ASSERT_EQ(stat(folder_.path().c_str(), &status), 0);
    std::filesystem::create_directories(folder_.path() / "sys" / "dev" / "block");
    std::filesystem::create_symlink(device, folder_.path() / "sys" / "dev" / "block" /
                                                fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev)));
  }
  std::filesystem::path partition_of(const std::string& drive) {
    const auto partition = folder_.path() / "sys" / "devices" / drive / (drive + "p2");
    std::filesystem::create_directories(partition / "partition");
    std::filesystem::create_directories(partition.parent_path() / "slaves");  // every block device has the folder
    return partition;
  }
  std::filesystem::path volume_over(const std::string& name, const std::vector<std::filesystem::path>& below) {
    const auto volume = folder_.path() / "sys" / "devices" / "virtual" / name;
    std::filesystem::create_directories(volume / "slaves");
    for (const auto& each : below) std::filesystem::create_symlink(each, volume / "slaves" / each.filename());
    return volume;
  }
  DriveWear read() {
    return read_drive_wear(folder_.path(), {.sysfs = folder_.path() / "sys", .devices = folder_.path() / "dev"});
  }

  TempFolder folder_;
};

TEST_F(Wear, is_counted_in_thousands_of_sectors_by_the_smart_log) {
  std::vector<std::byte> log(512);
  log[5] = std::byte{7};
  log[48] = std::byte{0x10};  // little-endian: 0x0110 units
  log[49] = std::byte{0x01};
  log[64] = std::byte{0xff};  // the next count
  const SmartLog smart = read_smart_log(log);
  EXPECT_EQ(smart.written_bytes, 0x110 * 512000LL);
  EXPECT_EQ(smart.used_percent, 7);
}

TEST_F(Wear, beyond_all_that_can_be_counted_in_bytes_is_not_told) {
  std::vector<std::byte> log(512);
  std::fill_n(log.begin() + 48, 8, std::byte{0xff});
  log[5] = std::byte{7};
  EXPECT_EQ(read_smart_log(log).written_bytes, std::nullopt);
  EXPECT_EQ(read_smart_log(log).used_percent, 7);
  const auto with = [&log](uint64_t units) {
    std::memcpy(log.data() + 48, &units, sizeof units);
    return read_smart_log(log).written_bytes;
  };
  constexpr int64_t kMostUnits = INT64_MAX / 512000;
  EXPECT_EQ(with(kMostUnits), kMostUnits * 512000);
  EXPECT_EQ(with(kMostUnits + 1), std::nullopt);
}

TEST_F(Wear, names_the_drive_of_a_partition_and_why_there_is_no_count) {
  show_drive("sdq");
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "sdq");
  EXPECT_FALSE(wear.written_bytes.has_value());
  EXPECT_EQ(wear.reason, "no NVMe drive, so there is no counter of its own to show");
}

TEST_F(Wear, of_an_nvme_drive_that_cannot_be_asked_is_not_known) {
  show_drive("nvme3n1");
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "nvme3n1");
  EXPECT_FALSE(wear.written_bytes.has_value());
  EXPECT_THAT(wear.reason,
              testing::AllOf(HasSubstr("its own counter is not shown: "), HasSubstr("dev/nvme3n1: No such file")));
  EXPECT_EQ(wear.volume, "");
}

// LVM on an encrypted partition: the drive is asked, and is the one that a folder on another of its partitions has.
TEST_F(Wear, of_a_volume_over_one_drive_is_that_drives) {
  show_below(volume_over("dm-1", {volume_over("dm-0", {partition_of("nvme3n1")})}));
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "nvme3n1");
  EXPECT_EQ(wear.volume, "dm-1");
  EXPECT_THAT(wear.reason, HasSubstr("dev/nvme3n1: No such file"));
}

TEST_F(Wear, of_a_volume_over_two_partitions_of_one_drive_is_that_drives) {
  const auto first = partition_of("nvme3n1"), second = first.parent_path() / "nvme3n1p3";
  std::filesystem::create_directories(second / "partition");
  show_below(volume_over("dm-0", {first, second}));
  EXPECT_EQ(read().device, "nvme3n1");
}

TEST_F(Wear, of_a_volume_over_several_drives_is_not_added_up_and_names_them) {
  show_below(volume_over("md0", {partition_of("nvme1n1"), partition_of("nvme0n1")}));
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "md0");
  EXPECT_EQ(wear.volume, "");
  EXPECT_FALSE(wear.written_bytes.has_value());
  EXPECT_EQ(wear.reason, "a volume over 2 drives (nvme0n1, nvme1n1), whose counters are not added up");
}

TEST_F(Wear, of_a_volume_over_drives_without_counters_says_so) {
  show_below(volume_over("md0", {partition_of("sda"), partition_of("sdb")}));
  EXPECT_THAT(read().reason, HasSubstr("over 2 drives (sda, sdb), none of which is an NVMe drive"));
}

TEST_F(Wear, needs_a_block_device) {
  EXPECT_THAT(read().reason, HasSubstr("no block device"));
  EXPECT_THAT(read_drive_wear("/proc").reason, HasSubstr("no block device"));
  EXPECT_THAT(read_drive_wear(folder_.path() / "missing").reason, HasSubstr("no block device"));
}

}  // namespace
}  // namespace sluice
