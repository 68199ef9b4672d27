// What a drive's own counters tell of how much has been written to it. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace sluice {

struct DriveWear {
  std::string device;                    // "nvme0n1"; empty: no block device lies behind the folder
  std::string volume;                    // "dm-0", where the folder is on one over that drive alone; else empty
  uint64_t file_system = 0;              // its number; 0: not known
  std::optional<int64_t> written_bytes;  // over the drive's life, by its SMART log
  std::optional<int> used_percent;       // of its rated endurance, by its own estimate
  std::string reason;                    // why there is no count, as people read it; empty where there is one
};

// Of the drive below a file or folder: that of a partition, that below a volume (LVM, RAID, encryption). A volume over
// several drives is taken for a device without a counter. Where the kernel's and the devices' folders are, for tests.
struct WearSources {
  std::filesystem::path sysfs = "/sys", devices = "/dev";
};
// Never throws for a drive that tells nothing: `reason` says why.
DriveWear read_drive_wear(const std::filesystem::path& path, const WearSources& sources = {});

// The count in an NVMe SMART log (NVM Express Base Specification, log page 02h; 512 bytes).
struct SmartLog {
  std::optional<int64_t> written_bytes;  // not told: a count beyond all that can be
  int used_percent = 0;
};
SmartLog read_smart_log(std::span<const std::byte> log);

}  // namespace sluice
