// The loss scale: what the loss is multiplied with before the backward, so that small gradients are not zero in fp16.
// It changes as the incumbent's users know it. Pure functions on the part of StepState that is theirs.
//
// A step with a non-finite gradient is skipped. Dynamic: it also halves the scale, but for the first hysteresis - 1 of
// them since that patience was granted; so many good steps in a row as the window has double it. Static: it stays.
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
