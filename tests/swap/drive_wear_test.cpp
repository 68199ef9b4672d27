#include "swap/drive_wear.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <vector>

#include "tests/fakes/test_store.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class Wear : public testing::Test {
 protected:
  // As the kernel shows the drive that the folder lies on: a partition of `drive`.
  void show_drive(const std::string& drive) {
    struct stat status {};
    ASSERT_EQ(stat(folder_.path().c_str(), &status), 0);
    const auto partition = folder_.path() / "sys" / "devices" / drive / (drive + "p2");
    std::filesystem::create_directories(partition / "partition");
    std::filesystem::create_directories(folder_.path() / "sys" / "dev" / "block");
    std::filesystem::create_symlink(partition, folder_.path() / "sys" / "dev" / "block" /
                                                   fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev)));
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

TEST_F(Wear, names_the_drive_of_a_partition_and_why_there_is_no_count) {
  show_drive("sdq");
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "sdq");
  EXPECT_FALSE(wear.written_bytes.has_value());
  EXPECT_THAT(wear.reason, HasSubstr("sdq is no NVMe drive"));
}

TEST_F(Wear, of_an_nvme_drive_that_cannot_be_asked_is_not_known) {
  show_drive("nvme3n1");
  const DriveWear wear = read();
  EXPECT_EQ(wear.device, "nvme3n1");
  EXPECT_FALSE(wear.written_bytes.has_value());
  EXPECT_THAT(wear.reason, HasSubstr("nvme3n1: No such file"));
}

TEST_F(Wear, needs_a_block_device) {
  EXPECT_THAT(read().reason, HasSubstr("no block device"));
  EXPECT_THAT(read_drive_wear("/proc").reason, HasSubstr("no block device"));
  EXPECT_THAT(read_drive_wear(folder_.path() / "missing").reason, HasSubstr("no block device"));
}

}  // namespace
}  // namespace sluice
