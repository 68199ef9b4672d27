#include "core/threads.h"

#include <string>

#include "core/errors.h"

namespace sluice {

void refuse_thread(std::string_view what, const std::system_error& why, std::string_view or_else) {
  std::string advice = "raise the limit of threads (ulimit -u, or the container's limit of pids)";
  if (!or_else.empty()) advice += "; " + std::string(or_else);
  throw IoError(
      {.action = "start", .path = std::string(what), .error_number = why.code().value(), .advice = std::move(advice)});
}

}  // namespace sluice
