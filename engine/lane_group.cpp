#include "engine/lane_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.h"

namespace sluice {

std::string_view name_of(LaneGroup group) {
  constexpr std::string_view kNames[] = {"nvme", "cpu", "copies", "compute"};
  return kNames[static_cast<int>(group)];
}

std::span<const Lane> lanes_of(LaneGroup group) {
  static constexpr Lane kNvme[] = {Lane::kRead, Lane::kWrite}, kCpu[] = {Lane::kUpdate},
                        kCopies[] = {Lane::kUpload, Lane::kDownload}, kCompute[] = {Lane::kCompute};
  switch (group) {
    case LaneGroup::kNvme:
      return kNvme;
    case LaneGroup::kCpu:
      return kCpu;
    case LaneGroup::kCopies:
      return kCopies;
    case LaneGroup::kCompute:
      return kCompute;
  }
  check_failed("group", __FILE__, __LINE__, "an unknown group");
}

bool belongs_to(LaneGroup group, Lane lane) {
  const auto lanes = lanes_of(group);
  return std::ranges::find(lanes, lane) != lanes.end();
}

std::string binding_words(const Busiest& busiest) {
  if (busiest.binds()) return fmt::format("{} binds", name_of(busiest.group));
  const int digits = busiest.step_ms < 10 ? 2 : 0;
  return fmt::format("busiest: {} {:.{}f} of {:.{}f} ms; lanes wait for each other", name_of(busiest.group), busiest.ms,
                     digits, busiest.step_ms, digits);
}

}  // namespace sluice
