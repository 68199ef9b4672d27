// Memory to measure visits in. No LibTorch in this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "offload/device.h"

namespace sluice {

// Anonymous memory that is resident only where it has been written.
class ZeroMemory {
 public:
  explicit ZeroMemory(int64_t bytes);  // throws ConfigError where the system refuses
  ~ZeroMemory();
  ZeroMemory(const ZeroMemory&) = delete;
  ZeroMemory& operator=(const ZeroMemory&) = delete;
  std::span<std::byte> span() const { return {base_, static_cast<size_t>(bytes_)}; }
  void clear();  // zero, and not resident, again

 private:
  std::byte* base_;
  int64_t bytes_;
};

// Memory of zeros where a device's visits compute: the host's is resident only where it is written, a GPU's is taken.
class ProbeMemory {
 public:
  ProbeMemory(DeviceKind device, int64_t bytes);  // kHost or kCuda. Throws ConfigError, DeviceError

  std::span<std::byte> span() const;  // kDeviceAlignmentBytes
  void* stream() const;               // Device::compute_stream()
  void give_back();                   // on the host: what is resident. Its values are nobody's any more

 private:
  int64_t bytes_;
  std::optional<ZeroMemory> host_;
  std::unique_ptr<Device> gpu_;
};

}  // namespace sluice
