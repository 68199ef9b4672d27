#include "engine/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace sluice {

std::optional<std::string> Speculation::note(int64_t step, Scale scale) {
  constexpr uint32_t kMask = (uint32_t{1} << kWindow) - 1;
  wrong_ = (wrong_ << 1 | (scale == Scale::kOther ? 1U : 0U)) & kMask;
  seen_ = std::min(seen_ + 1, kWindow);
  const int wrong = std::popcount(wrong_);
  if (choice_ == Choice::kSpeculative && wrong >= kTooManyWrong) {
    choice_ = Choice::kDeferred;
    return fmt::format(
        "updates wait for the clip from step {} on: it engaged, or the step was skipped, in {} of the last {} steps "
        "(early again after {} steps without)",
        step + 1, wrong, seen_, kWindow);
  }
  if (choice_ == Choice::kDeferred && seen_ >= kFirst && wrong == 0) {
    choice_ = Choice::kSpeculative;
    return fmt::format(
        "updates run early, in the backward, from step {} on: the clip engaged in none of the last {} steps, and none "
        "was skipped",
        step + 1, seen_);
  }
  return std::nullopt;
}

}  // namespace sluice
