#include "app/carried.h"

#include <fmt/format.h>

#include <cstring>

#include "core/errors.h"

namespace sluice {

namespace {

DeviceKind device_of(const Carried& carried) {
  return carried.device == 1 ? DeviceKind::kHost : carried.device == 2 ? DeviceKind::kCuda : DeviceKind::kAuto;
}

}  // namespace

Carried Carried::of(uint32_t data, DeviceKind device) {
  return {.data = data, .device = device == DeviceKind::kCuda ? 2u : 1u};
}

void check_carried(const StepState& committed, const Carried& now, const RunFolder& folder, const Log& log) {
  const std::span<const std::byte> bytes = committed.caller;
  Carried before;
  if (bytes.size() != sizeof before && bytes.size() != sizeof before.data) return;  // nothing has been trained on
  std::memcpy(&before, bytes.data(), bytes.size());
  if (before.data != now.data) {
    throw ConfigError(
        fmt::format("{}: the text is not the one that the run there was trained on (fingerprint {:08x}, now "
                    "{:08x}): give that text, or begin again with --overwrite",
                    folder.path().string(), before.data, now.data));
  }
  const DeviceKind was = device_of(before), is = device_of(now);
  if (was == DeviceKind::kAuto || was == is) return;  // not known
  say(log, LogLevel::kWarning,
      fmt::format("\"sluice.device\" comes to {}: the run goes on, but not bit for bit as it would have under {}",
                  name_of(is), name_of(was)));
}

}  // namespace sluice
