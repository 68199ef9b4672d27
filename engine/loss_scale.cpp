#include "engine/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"

namespace sluice {
namespace {

using Options = LossScaleOptions;

void note_good_step(const Options& options, StepState& state) {
  state.skipped_in_a_row = 0;
  if (options.kind == Options::Kind::kStatic) return;
  if (options.patience == Options::Patience::kAnewAfterGoodStep) state.hysteresis_left = options.hysteresis;
  const int64_t after_the_first = state.good_steps++;
  if (after_the_first == 0 || after_the_first % options.window != 0) return;
  state.hysteresis_left = options.hysteresis;
  state.loss_scale = std::min(2 * state.loss_scale, kLargestLossScale);
}

void note_skipped_step(const Options& options, StepState& state) {
  const bool lowest = options.kind == Options::Kind::kStatic || state.loss_scale <= options.least;
  state.skipped_in_a_row = lowest ? state.skipped_in_a_row + 1 : 0;
  if (options.kind == Options::Kind::kStatic) return;
  state.good_steps = 0;
  if (state.hysteresis_left > 1) {
    --state.hysteresis_left;
  } else {
    state.loss_scale = std::max(state.loss_scale / 2, options.least);
  }
}

}  // namespace

void Options::validate() const {
  const auto scale = [](double value) { return value >= kSmallestLossScale && value <= kLargestLossScale; };
  if (scale(first) && (kind == Kind::kStatic || (scale(least) && first >= least && window >= 1 && hysteresis >= 1)))
    return;
  throw ConfigError(
      fmt::format("a loss scale of {:g}, at least {:g}, with a window of {} and a hysteresis of {}: allowed are scales "
                  "from 2^-100 to 2^100, the first no less than the least, and counts of 1 or more",
                  first, least, window, hysteresis));
}

void begin_loss_scale(const Options& options, StepState& state) {
  if (options.kind == Options::Kind::kStatic) {
    state.loss_scale = options.first;
    state.good_steps = state.hysteresis_left = 0;
    return;
  }
  if (state.step == 0) state.loss_scale = options.first;
  state.loss_scale = std::max(state.loss_scale, options.least);
  const bool counted = state.hysteresis_left >= 1 && state.hysteresis_left <= options.hysteresis;
  if (!counted) state.hysteresis_left = options.hysteresis;
}

void note_step(const Options& options, StepWas was, StepState& state) {
  was == StepWas::kGood ? note_good_step(options, state) : note_skipped_step(options, state);
}

}  // namespace sluice
