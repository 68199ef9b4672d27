#include "engine/update_nodes.h"

#include <algorithm>

#include "core/bytes.h"

namespace sluice {
namespace {

constexpr int64_t kPageBytes = 2 * kMiB;

}  // namespace

UpdateNodes::UpdateNodes(std::span<const UpdateRanges> updates, std::span<const TeamGroup> groups) {
  std::vector<int64_t> work(groups.size(), 0);  // bytes
  const auto least_busy = [&] {
    size_t best = 0;
    for (size_t i = 1; i < groups.size(); ++i) {
      if (work[i] * groups[best].threads < work[best] * groups[i].threads) best = i;
    }
    return static_cast<int>(best);
  };
  for (const UpdateRanges& update : updates) {
    int group = group_at(update.state.offset);
    if (group == UpdateTeam::kAnyGroup) group = least_busy();
    for (const HostRange& range : {update.state, update.weights, update.gradient}) {
      take(range, group);
      work[static_cast<size_t>(group)] += range.bytes;
    }
    for (const HostRange& range : {update.other_state, update.other_weights}) take(range, group);
  }
}

int UpdateNodes::group_at(int64_t offset) const {
  const auto after = std::ranges::upper_bound(parts_, offset, {}, &Part::begin);
  if (after == parts_.begin() || std::prev(after)->end <= offset) return UpdateTeam::kAnyGroup;
  return std::prev(after)->group;
}

// What is somebody's already stays that one's.
void UpdateNodes::take(const HostRange& range, int group) {
  int64_t begin = range.offset;
  const int64_t end = range.offset + range.bytes;
  auto next = std::ranges::upper_bound(parts_, begin, {}, &Part::begin);
  if (next != parts_.begin()) begin = std::max(begin, std::prev(next)->end);
  while (begin < end) {
    const int64_t stop = next == parts_.end() ? end : std::min(end, next->begin);
    if (begin < stop) next = std::next(parts_.insert(next, {.begin = begin, .end = stop, .group = group}));
    if (next == parts_.end()) return;
    begin = std::max(stop, next->end);
    ++next;
  }
}

// A page that several have a part of goes to the last of them.
std::vector<HostRange> UpdateNodes::pages_of(int group, int64_t arena_bytes) const {
  if (group == UpdateTeam::kAnyGroup) return pages_of_nobody(arena_bytes);
  std::vector<HostRange> pages;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t whole_end = round_up(parts_[i].end, kPageBytes);
    const bool shared = i + 1 < parts_.size() && parts_[i + 1].begin < whole_end;
    const int64_t begin = parts_[i].begin / kPageBytes * kPageBytes;
    const int64_t end = shared ? parts_[i].end / kPageBytes * kPageBytes : std::min(whole_end, arena_bytes);
    if (parts_[i].group != group || begin >= end) continue;
    if (!pages.empty() && pages.back().offset + pages.back().bytes == begin) {
      pages.back().bytes += end - begin;
    } else {
      pages.push_back({.offset = begin, .bytes = end - begin});
    }
  }
  return pages;
}

std::vector<HostRange> UpdateNodes::pages_of_nobody(int64_t arena_bytes) const {
  std::vector<HostRange> pages;
  int64_t at = 0;
  const auto take_until = [&](int64_t end) {
    if (at < end) pages.push_back({.offset = at, .bytes = end - at});
  };
  for (const Part& part : parts_) {
    take_until(part.begin / kPageBytes * kPageBytes);
    at = round_up(part.end, kPageBytes);
  }
  take_until(arena_bytes);
  return pages;
}

std::vector<UpdateRanges> update_ranges(const Plan& plan, std::span<const UnitProgram> units) {
  std::vector<UpdateRanges> all;
  for (const UnitProgram& unit : units) {
    for (const UpdateOperands& update : unit.updates) {
      if (update.place == Place::kDevice) continue;
      const int64_t elements = plan.geometry.chunks()[update.chunk].elements;
      const bool at_home = plan.chunks[update.chunk].gradient == Home::kHost;
      const int64_t state = plan.record_bytes(update.chunk, Group::kState);
      const int64_t weights = plan.record_bytes(update.chunk, Group::kWeights);
      all.push_back({.state = {update.state, state},
                     .weights = {update.weights, weights},
                     .gradient = {update.gradient, at_home ? plan.gradient_bytes(elements) : 0}});
      if (!plan.has_other_slot(update.chunk)) continue;
      const HostSlot& slot = plan.other_slots[update.chunk];
      all.back().other_state = {slot.state, state};
      all.back().other_weights = {slot.weights, weights};
    }
  }
  return all;
}

}  // namespace sluice
