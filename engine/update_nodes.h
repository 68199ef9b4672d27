// Which of the update team's groups (one a NUMA node) updates which chunk, and which bytes of the host arena lie on
// which node: a chunk's records, and its gradient where that is at home in host memory, lie with its threads. Gradients
// that come from elsewhere pass through a ring of copies, which is nobody's. Changes no bits. Pure functions.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/topology.h"
#include "cpu_adam/update_team.h"
#include "engine/plan.h"
#include "engine/step.h"

namespace sluice {

struct HostRange {
  int64_t offset = 0, bytes = 0;
};

// One update's ranges in the host arena; none: 0 bytes.
struct UpdateRanges {
  HostRange state, weights, gradient;
  HostRange other_state, other_weights;  // their other slot
};

class UpdateNodes {
 public:
  // Updates in the order of their units. One whose state lies where an earlier one's began (a ring's buffer) stays with
  // that one's group; another goes to the group with the least work for each of its threads, and takes its memory with
  // it.
  UpdateNodes(std::span<const UpdateRanges> updates, std::span<const TeamGroup> groups);

  // UpdateTeam::kAnyGroup where the byte is nobody's.
  int group_at(int64_t offset) const;
  // The pages of 2 MiB, of an arena of so many bytes, that lie with a group; kAnyGroup: that no update touches.
  std::vector<HostRange> pages_of(int group, int64_t arena_bytes) const;

 private:
  struct Part {
    int64_t begin = 0, end = 0;
    int group = 0;
  };
  void take(const HostRange& range, int group);
  std::vector<HostRange> pages_of_nobody(int64_t arena_bytes) const;
  std::vector<Part> parts_;  // ascending, disjoint
};

// The updates of some units, and what they touch.
std::vector<UpdateRanges> update_ranges(const Plan& plan, std::span<const UnitProgram> units);

}  // namespace sluice
