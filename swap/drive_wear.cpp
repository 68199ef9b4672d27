#include "swap/drive_wear.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/nvme_ioctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/errors.h"

namespace sluice {
namespace {

constexpr size_t kSmartLogBytes = 512;

uint64_t file_system_of(const std::filesystem::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_dev : 0;
}

// Of a partition's folder in the kernel's that of the drive; of any other its own.
std::filesystem::path whole_device(const std::filesystem::path& device) {
  std::error_code error;
  return std::filesystem::exists(device / "partition", error) ? device.parent_path() : device;
}

// Empty: there is none.
std::filesystem::path device_of(uint64_t file_system, const std::filesystem::path& sysfs) {
  std::error_code error;
  const auto device = std::filesystem::canonical(
      sysfs / "dev" / "block" / fmt::format("{}:{}", major(file_system), minor(file_system)), error);
  return error ? std::filesystem::path() : whole_device(device);
}

// The drives' names: the device's own, or of a volume those that it lies on, with volumes between or none.
void add_drives(const std::filesystem::path& device, std::set<std::string>& drives) {
  std::error_code error;
  std::vector<std::filesystem::path> below;
  for (std::filesystem::directory_iterator at(device / "slaves", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unknown;
    below.push_back(whole_device(std::filesystem::weakly_canonical(at->path(), unknown)));
  }
  if (below.empty()) drives.insert(device.filename());
  for (const auto& each : below) add_drives(each, drives);
}

// Elsewhere the SMART log is another, or there is none.
bool is_nvme(const std::string& drive) { return drive.starts_with("nvme"); }

std::string words_of_volume(const std::set<std::string>& drives) {
  const bool have_counters = std::ranges::any_of(drives, is_nvme);
  return fmt::format("a volume over {} drives ({}), {}", drives.size(), fmt::join(drives, ", "),
                     have_counters ? "whose counters are not added up"
                                   : "none of which is an NVMe drive, so there are no counters of their own to show");
}

std::string not_shown(const std::string& why) { return "its own counter is not shown: " + why; }

// Get Log Page (02h) of log 02h, for the whole controller. 0, or errno; EIO: the controller refuses.
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
  const std::filesystem::path below = device_of(wear.file_system, sources.sysfs);
  if (below.empty()) {
    wear.reason = not_shown("no block device lies behind it");
    return wear;
  }
  wear.device = below.filename();
  std::set<std::string> drives;
  add_drives(below, drives);
  if (drives.size() > 1) {
    wear.reason = words_of_volume(drives);
    return wear;
  }
  if (*drives.begin() != wear.device) wear.volume = std::exchange(wear.device, *drives.begin());
  if (!is_nvme(wear.device)) {
    wear.reason = "no NVMe drive, so there is no counter of its own to show";
    return wear;
  }
  std::array<std::byte, kSmartLogBytes> log = {};
  const std::filesystem::path device = sources.devices / wear.device;
  if (const int error_number = fetch_smart_log(device, log); error_number != 0) {
    wear.reason = not_shown(fmt::format("{}: {}", device.string(), std::generic_category().message(error_number)));
    if (error_number == EACCES || error_number == EPERM) wear.reason += " (root may read it)";
    return wear;
  }
  const SmartLog smart = read_smart_log(log);
  wear.written_bytes = smart.written_bytes;
  if (!wear.written_bytes) {
    wear.reason = not_shown(fmt::format("{}: its SMART log tells no count that can be", device.string()));
  }
  wear.used_percent = smart.used_percent;
  return wear;
}

}  // namespace sluice
