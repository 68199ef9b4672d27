#include "app/kept_timeline.h"

#include <fmt/format.h>

#include <exception>
#include <system_error>

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
  std::filesystem::path part = file_;
  part += ".part";
  std::error_code ignored;
  try {
    engine.write_timeline(part.string());
    std::filesystem::rename(part, file_);
  } catch (const std::exception& failed) {
    say(log_, LogLevel::kWarning, fmt::format("the step's timeline is not kept: {}", failed.what()));
    std::filesystem::remove(part, ignored);
  }
}

}  // namespace sluice
