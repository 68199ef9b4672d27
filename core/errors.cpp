#include "core/errors.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace sluice {
namespace {

std::string message_of(const IoError::Details& d) {
  std::string text = fmt::format("{} of {} failed", d.action, d.path);
  if (d.bytes >= 0 && d.offset >= 0) {
    text += fmt::format(" ({} bytes at offset {})", d.bytes, d.offset);
  } else if (d.bytes >= 0) {
    text += fmt::format(" ({} bytes)", d.bytes);
  } else if (d.offset >= 0) {
    text += fmt::format(" (at offset {})", d.offset);
  }
  if (d.error_number != 0) {
    text += fmt::format(": {} (errno {})", std::generic_category().message(d.error_number), d.error_number);
  } else if (!d.reason.empty()) {
    text += ": " + d.reason;
  }
  if (!d.advice.empty()) text += "; " + d.advice;
  return text;
}

}  // namespace

IoError::IoError(Details details) : Error(message_of(details)), details_(std::move(details)) {}

void check_failed(const char* condition, const char* file, int line, std::string_view message) {
  throw std::logic_error(fmt::format("{}:{}: check failed: {}: {}", file, line, condition, message));
}

}  // namespace sluice
