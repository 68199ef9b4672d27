#include "swap/drive_wear.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/errors.h"

namespace sluice {
namespace {

constexpr size_t kSmartLogBytes = 512;

uint64_t file_system_of(const std::filesystem::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_dev : 0;
}

// The whole drive's name: that of the parent where the file system lies on a partition.
std::string device_of(uint64_t file_system, const std::filesystem::path& sysfs) {
  std::error_code error;
  auto device = std::filesystem::canonical(
      sysfs / "dev" / "block" / fmt::format("{}:{}", major(file_system), minor(file_system)), error);
  if (error) return {};
  if (std::filesystem::exists(device / "partition", error)) device = device.parent_path();
  return device.filename();
}

// Get Log Page (02h) of log 02h, for the whole controller. 0, or errno, or an NVMe status (positive, above errno's).
int fetch_smart_log(const std::filesystem::path& device, std::span<std::byte> into) {
  const int file = open(device.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  struct nvme_admin_cmd command {};
  command.opcode = 0x02;
  command.nsid = 0xffffffff;
  command.addr = reinterpret_cast<uint64_t>(into.data());
  command.data_len = static_cast<uint32_t>(into.size());
  command.cdw10 = 0x02 | static_cast<uint32_t>(into.size() / 4 - 1) << 16;
  const int result = ioctl(file, NVME_IOCTL_ADMIN_CMD, &command);
  const int error_number = result < 0 ? errno : result == 0 ? 0 : EIO;
  close(file);
  return error_number;
}

}  // namespace

SmartLog read_smart_log(std::span<const std::byte> log) {
  SLUICE_CHECK(log.size() == kSmartLogBytes, "a SMART log has 512 bytes");
  constexpr size_t kPercentageUsed = 5, kDataUnitsWritten = 48;
  constexpr int64_t kUnitBytes = 512 * 1000;
  uint64_t units = 0;  // the upper half of the count would be 9 billion TB
  std::memcpy(&units, log.data() + kDataUnitsWritten, sizeof units);
  const bool is_told = units <= static_cast<uint64_t>(INT64_MAX / kUnitBytes);  // what is more no drive has taken
  return {.written_bytes = is_told ? std::optional(static_cast<int64_t>(units) * kUnitBytes) : std::nullopt,
          .used_percent = std::to_integer<int>(log[kPercentageUsed])};
}

DriveWear read_drive_wear(const std::filesystem::path& path, const WearSources& sources) {
  DriveWear wear{.file_system = file_system_of(path)};
  wear.device = device_of(wear.file_system, sources.sysfs);
  if (wear.device.empty()) {
    wear.reason = "no block device lies behind it";
    return wear;
  }
  if (!wear.device.starts_with("nvme")) {
    wear.reason = fmt::format("{} is no NVMe drive", wear.device);
    return wear;
  }
  std::array<std::byte, kSmartLogBytes> log = {};
  const std::filesystem::path device = sources.devices / wear.device;
  if (const int error_number = fetch_smart_log(device, log); error_number != 0) {
    wear.reason = fmt::format("{}: {}", device.string(), std::generic_category().message(error_number));
    if (error_number == EACCES || error_number == EPERM) wear.reason += " (root may read it)";
    return wear;
  }
  const SmartLog smart = read_smart_log(log);
  wear.written_bytes = smart.written_bytes;
  if (!wear.written_bytes) wear.reason = fmt::format("{}: its SMART log tells no count that can be", device.string());
  wear.used_percent = smart.used_percent;
  return wear;
}

}  // namespace sluice
