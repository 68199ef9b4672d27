// The resources of a step: what replays run alone and predictions compare.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "offload/program.h"

namespace sluice {

// The drive's two lanes; the update threads; the copies' two lanes; compute with close and clip.
enum class LaneGroup : uint8_t { kNvme, kCpu, kCopies, kCompute };
constexpr int kLaneGroupCount = 4;
std::string_view name_of(LaneGroup group);  // "nvme", "cpu", "copies", "compute"
std::span<const Lane> lanes_of(LaneGroup group);

}  // namespace sluice
