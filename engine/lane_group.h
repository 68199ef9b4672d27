// The resources of a step: what replays run alone and predictions compare.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "offload/program.h"

namespace sluice {

// The drive's two lanes; the update threads; the copies' two lanes; compute with close and clip.
enum class LaneGroup : uint8_t { kNvme, kCpu, kCopies, kCompute };
constexpr int kLaneGroupCount = 4;
std::string_view name_of(LaneGroup group);  // "nvme", "cpu", "copies", "compute"
std::span<const Lane> lanes_of(LaneGroup group);
bool belongs_to(LaneGroup group, Lane lane);

// The resource that is busy for the longest of a step, predicted or measured.
struct Busiest {
  LaneGroup group = LaneGroup::kCompute;
  double ms = 0, step_ms = 0;
  // Below this share of the step nothing can be called its bound: lanes wait for each other.
  static constexpr double kBindingShare = 0.8;
  bool binds() const { return step_ms > 0 && ms >= kBindingShare * step_ms; }
};
// "compute binds", or where nothing does "busiest: cpu 49 of 84 ms; lanes wait for each other".
std::string binding_words(const Busiest& busiest);

}  // namespace sluice
