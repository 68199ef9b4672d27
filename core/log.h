// The log that every folder writes to: spdlog's, owned by the caller. Libraries take a Log; the default drops messages.
#pragma once
#include <functional>
#include <string>

namespace sluice {

enum class LogLevel { kInfo, kWarning, kError };
// Thread-safe to call if the function given is. An empty Log drops messages.
using Log = std::function<void(LogLevel, const std::string&)>;
inline void say(const Log& log, LogLevel level, const std::string& message) {
  if (log) log(level, message);
}

}  // namespace sluice
