// When chunks are updated: a choice of speed and memory; no bit depends on it. Plain values.
#pragma once
#include <cstdint>
#include <string_view>

#include "engine/placement.h"

namespace sluice {

//   kDeferred:    beside the next forward, when the step's scale is known.
//   kSpeculative: most chunks already in the backward, as their gradients close, as if the clip did not engage; updated
//                 again from the committed slot where it did.
//   kReplay:      all chunks in the backward; no gradient is kept. Where the prediction was wrong the step runs again.
//   kAuto:        deferred or speculative, following how often the clip engages.
enum class UpdateMode : uint8_t { kAuto, kDeferred, kSpeculative, kReplay };
std::string_view name_of(UpdateMode mode);  // "auto", "deferred", "speculative", "replay"

// What kSpeculative and kReplay would undo lies in the committed slots, so they need a commit in every step; replay has
// no gradients to place. Throws ConfigError where the user's other wishes forbid the mode. commit_interval 0: not said.
void check_update_mode(UpdateMode mode, int commit_interval, const Placement& placement);

}  // namespace sluice
