// The loss scale: what the loss is multiplied with before the backward, so that small gradients are not zero in fp16.
// Pure functions on the part of StepState that is theirs.
//
// A step with a non-finite gradient is skipped. Static: the scale stays. Dynamic: it changes as DeepSpeed's does
// (0.19.5, DynamicLossScaler in deepspeed/runtime/fp16/loss_scaler.py). A skipped step halves it, but for the first
// hysteresis - 1 of them since that patience was granted. A window of good steps beyond the first in a row doubles it,
// and so does every window after that one: with a window of 3 the 4th, 7th, 10th. DeepSpeed's stops a run at the first
// skip that finds the least scale, this one's user has ten.
#pragma once
#include <cstdint>

#include "swap/record_store.h"

namespace sluice {

// Beyond these a scale or its inverse is near the end of fp32's range.
constexpr double kSmallestLossScale = 0x1p-100, kLargestLossScale = 0x1p100;
// A run that skips this many steps in a row while the scale cannot be lowered stops.
constexpr int kMostSkipsInARow = 10;

struct LossScaleOptions {
  enum class Kind : uint8_t { kStatic, kDynamic } kind = Kind::kStatic;
  double first = 1;  // of the first step; static: of every step
  // Dynamic only:
  double least = 1;
  int64_t window = 1000;
  int64_t hysteresis = 2;
  enum class Patience : uint8_t { kAnewWhenRaised, kAnewAfterGoodStep } patience = Patience::kAnewWhenRaised;

  // Throws ConfigError: a scale beyond those two, first below least, a window or hysteresis below 1.
  void validate() const;
};

// Before the first step of a store that is new or was opened, whose options may have been others.
void begin_loss_scale(const LossScaleOptions& options, StepState& state);
// After a step: the scale of the next one, the counts behind it, and skipped_in_a_row.
enum class StepWas : uint8_t { kGood, kSkipped };
void note_step(const LossScaleOptions& options, StepWas was, StepState& state);

}  // namespace sluice
