// A program: the hops of one unit in one list. What runs (executor), what is simulated, what is drawn.
//
// A hop names the byte ranges it reads and fills; the program derives whom it must wait for: who wrote what it reads,
// and who still uses what it overwrites. Every predecessor stands earlier in the list and each lane starts its hops in
// list order, so the first unfinished hop has finished predecessors and heads its lane: no deadlock.
//
// Each range also says *which* bytes are meant to be there (its content). emit() refuses a hop that would read bytes
// that something else has overwritten since, so a program in which two live hops own the same bytes cannot be built.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "offload/hazards.h"

namespace sluice {

enum class Lane : uint8_t { kRead, kWrite, kUpload, kDownload, kCompute, kUpdate };
constexpr int kLaneCount = 6;
std::string_view name_of(Lane lane);

enum class Verb : uint8_t {
  kSwapIn,
  kSwapOut,
  kUpload,
  kDownload,
  kCompute,
  kUpdate,
  kVerify,
  kSeal,
  kClose,
  kClip,
  kCommit
};
std::string_view name_of(Verb verb);
// Where a verb's hops stand.
constexpr Lane lane_of(Verb verb) {
  constexpr Lane kLanes[] = {Lane::kRead,    Lane::kWrite,   Lane::kUpload, Lane::kDownload,
                             Lane::kCompute, Lane::kUpdate,  Lane::kUpdate, Lane::kUpdate,
                             Lane::kCompute, Lane::kCompute, Lane::kWrite};
  return kLanes[static_cast<int>(verb)];
}

// When a hop has something to do; otherwise it moves nothing and ends with the last hop that it waits for. Decided as
// it would start.
enum class When : uint8_t {
  kAlways,
  kPending,          // the last step's update is still to be applied
  kPendingOrSummed,  // ... or the record must be summed all the same: for a commit, or since a visit takes it
  kCommitDirty,      // a commit is due and the record, at home in memory, has changed since it was written
  kCommit,           // a commit is due
  kStaleOnDevice,    // weights kept on the device that are not there, or are about to change
  kSpeculating,      // an update in the backward, unless the step has been given up
  kMispredicted,     // the last step's updates in the backward must be undone
  kNotOnDevice,      // records at home on the device that are not there, as a run begins or goes on, or must be undone
};
// kYes: the unit before reads this record where it has the time to; where it has, there is nothing to do either.
enum class Prefetched : uint8_t { kNo, kYes };

struct Hop {
  Verb verb = Verb::kCompute;
  When when = When::kAlways;
  Prefetched prefetched = Prefetched::kNo;
  Group group = Group::kWeights;  // of what moves, for swaps, verify, seal, copies
  int32_t visit = -1;
  // What it is about. Verb, group and visit tell which of these a hop has; no other is read. Clip and commit have none.
  union {
    int32_t chunk = -1;     // of updates, and of what moves or is checked without a visit
    int32_t micro_batch;    // of compute
    int32_t partition;      // of close, and of copies of an open gradient (kGradient with a visit)
    int32_t tensor_number;  // of kActivations: tensor x micro-batches + micro-batch
  };
  union {
    int32_t scratch_extent = -1;  // of swap, verify and seal; -1: of a record
    int32_t operands;             // of update and compute: index into the builder's side tables
  };
  int64_t host_offset = -1;    // where in the host arena
  int64_t device_offset = -1;  // where in the device arena
  int64_t bytes = 0;           // payload that moves

  Lane lane() const { return lane_of(verb); }
};
static_assert(sizeof(Hop) == 40);  // a program of a large model has millions

class Program {
 public:
  // Appends a hop and returns its number. Throws std::logic_error when a read range does not hold the content it names.
  int emit(const Hop& hop, std::span<const Range> reads, std::span<const Range> fills);
  // Ends building: drops what only emit() needs and lays out successors and lanes.
  void finish();

  std::span<const Hop> hops() const { return hops_; }
  std::span<const int32_t> predecessors(int hop) const { return slice(predecessors_, first_predecessor_, hop); }
  std::span<const int32_t> successors(int hop) const { return slice(successors_, first_successor_, hop); }
  std::span<const int32_t> lane(Lane lane) const { return lanes_[static_cast<int>(lane)]; }
  int64_t memory_bytes() const;
  // "swap_in h.3 state 12", "compute h.3 #1": `visit_name` is the visit's.
  static std::string describe(const Hop& hop, std::string_view visit_name);
  // What it moves or does: "state", "weights", "gradient", "activations", "compute", "update", "checksum", "control".
  static std::string_view category(const Hop& hop);

 private:
  static constexpr size_t kFirstHops = 512;  // that there is room for from the first one on
  static std::span<const int32_t> slice(const std::vector<int32_t>& items, const std::vector<int32_t>& first, int hop);

  std::vector<Hop> hops_;
  std::vector<int32_t> first_predecessor_{0}, predecessors_;
  std::vector<int32_t> first_successor_, successors_;
  std::vector<int32_t> lanes_[kLaneCount];
  std::unique_ptr<Hazards> hazards_;  // from the first hop until it is finished
};

}  // namespace sluice
