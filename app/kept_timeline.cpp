#include "app/kept_timeline.h"

#include <fmt/format.h>

#include <exception>

#include "core/errors.h"
#include "core/pending_file.h"

namespace sluice {
namespace {

bool is_kept(int64_t number) {
  constexpr int64_t kFirst = 3;
  int64_t leading = number;
  while (leading > kFirst && leading % 10 == 0) leading /= 10;
  return leading == 1 || number <= kFirst;
}

}  // namespace

void KeptTimeline::after_step(const Engine& engine, int64_t number) {
  if (!is_kept(number)) return;
  try {
    PendingFile pending(file_);
    engine.write_timeline(pending.temporary().string());
    pending.publish();
  } catch (const IoError& failed) {
    IoError::Details details = failed.details();
    details.path = file_.string();  // it has no name yet
    say(log_, LogLevel::kWarning, fmt::format("the step's timeline is not kept: {}", IoError(details).what()));
  } catch (const std::exception& failed) {
    say(log_, LogLevel::kWarning, fmt::format("the step's timeline is not kept: {}", failed.what()));
  }
}

}  // namespace sluice
