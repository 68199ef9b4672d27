// The plan: for every byte of model state its home, and for every buffer its offset, as a pure value made from the
// model and the byte budgets. Nothing here touches memory, files or clocks.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/adam_step.h"
#include "core/bytes.h"
#include "core/geometry.h"
#include "core/ledger.h"
#include "engine/lane_group.h"
#include "engine/machine.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "engine/update_mode.h"

namespace sluice {

struct Hop;
struct TableNeeds;

// Buffers on the device start at multiples of this, so that kernels see the same alignment in every placement.
constexpr int64_t kDeviceAlignmentBytes = 256;

// Steps between commits where they are rare; more where they would take much of the time (PlanOptions).
constexpr int kCommitRarely = 10;
constexpr double kCommitsMayTake = 0.03;  // of a step, on average
constexpr double kMostLostMs = 60'000;    // of training that a crash loses, where commits are rarer still

struct PlanOptions {
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdam;
  DType moments = DType::kFp32;         // or bf16, rounded stochastically
  DType gradient_dtype = DType::kBf16;  // of closed gradients: the weights' type, or fp32
  int64_t device_bytes = 0;             // hard cap, workspace and the device's own included
  int64_t host_bytes = 0;               // hard cap on the mapping and our tables
  int64_t workspace_bytes = 0;          // measured, on the device
  int64_t own_device_bytes = 0;         // sluice::own_device_bytes()
  // Per visit, measured: device memory in which a forward keeps what its backward would compute again, of one
  // micro-batch. 0, or no list: the backward always computes it again.
  std::vector<int64_t> graph_bytes;
  int micro_batches = 1;       // gradient accumulation
  int64_t chunk_elements = 0;  // 0: derived from the host budget; smaller where speeds say that it makes steps shorter
  // 0: auto: 1 when any state's home is NVMe, or where updates that were early may have to be undone (kSpeculative,
  // kReplay), else kCommitRarely; where speeds are known and `placement` does not ask for all state on NVMe, the other
  // one if a step is then predicted to be clearly shorter: 1 by a hundredth, kCommitRarely by a twentieth. In place of
  // kCommitRarely the least of 20, 50, 100, 200, 500 and 1000 with which commits are predicted to add 3 % to a step or
  // less, or the largest of them of which so many steps are predicted to take a minute or less.
  int commit_interval = 0;
  UpdateMode update = UpdateMode::kAuto;
  bool clips = true;  // gradients may be clipped: under kAuto a plan then serves steps that are, too
  std::optional<double> speculated_share;  // of the elements; not said: the planner's choice
  std::optional<StepSpeeds> speeds;        // known: the planner chooses by predicted time where it can
  int io_depth = 64;                       // of the store's queue for each drive, for its share of the host budget
  int drives = 1;                          // of the store; an engine counts its folders
  int64_t progress_bytes = 4096;           // what Engine::set_progress may carry, 1 MiB at the most; of the host budget
  Placement placement;
  bool operator==(const PlanOptions&) const = default;
  RecordFormat format() const { return {precision, optimizer, moments}; }
  AdamFormat adam_format() const { return {precision, gradient_dtype, moments}; }
};

// kNowhere: gradients under replay, which the update takes as they close; sums that there are none of.
enum class Home : uint8_t { kDevice, kHost, kNvme, kNowhere };

// Where a chunk's records lie in the host arena.
struct HostSlot {
  int64_t state = -1, weights = -1;
};

// State at home on the device has its weights and its gradient there too: the weights' home is the partition that is
// kept there, and nothing else has them between commits.
struct ChunkHomes {
  Home weights = Home::kNvme, state = Home::kNvme, gradient = Home::kHost;
  int64_t weights_offset = -1;   // in the host arena where the home is host
  int64_t state_offset = -1;     // in the arena of its home, where that is not NVMe
  int64_t gradient_offset = -1;  // in the arena of its home; on NVMe: its scratch extent
  bool updated_on_device() const { return state == Home::kDevice; }
};

// A ring of bytes: buffers are taken one after the other and wrap; the program's hazards keep users apart.
struct Ring {
  int64_t offset = 0;  // in its arena
  int64_t bytes = 0;
};

struct TensorHome {  // one boundary tensor of one micro-batch
  Home home = Home::kHost;
  int64_t offset = -1;  // in the arena of its home; on NVMe: its scratch extent
};

// Where the fp32 sums of gradients rest that several visits contribute to: of a partition, or of a tensor of one
// micro-batch. Sums whose visits are apart share a slot.
struct OpenSlot {
  int64_t elements = 0;
  Home home = Home::kDevice;  // kHost: passes through the device's rings for every visit that contributes
  int64_t offset = -1;        // in the arena of its home
  int64_t bytes() const { return elements * 4; }
};

struct MoveRow {     // what a step moves over one link
  std::string link;  // "nvme read", "nvme write", "upload", "download"
  std::string what;  // a group's name, or "padding to whole blocks" of a drive
  int64_t bytes = 0;
};
struct UseRow {
  Tier tier;
  std::string use;
  int64_t bytes = 0;
};

// Where the parts of one chunk's buffer lie in the update ring, relative to its start; -1: the part has a home of its
// own.
struct UpdateLayout {
  int64_t state = -1, weights = -1;
  int64_t bytes = 0;
};

enum class UpdateTime : uint8_t { kDeferred, kEarly };

// Which chunks the first half of a unit updates: all, or the deferred ones alone, where the unit before has updated the
// early ones.
enum class UpdateHalf : uint8_t { kAll, kDeferred };
constexpr int kUpdateHalves = 2;

// Who chose among the homes that were free: the planner's fixed order, or a program over a machine's speeds.
enum class HomesBy : uint8_t { kOrder, kSpeeds };

// Whose state host memory is for: that of the chunks which the forward needs first, or of those behind them which a
// backward cannot read ahead into the update ring. Then what the forward needs first waits in the ring, and its updates
// begin to free the ring for further reads at once.
enum class HostStateOrder : uint8_t { kNeededFirst, kBehindReadAhead };

struct Plan {
  PlanOptions options;
  Geometry geometry;
  std::vector<ChunkHomes> chunks;
  std::vector<int> update_order;         // chunks, in the order in which forward needs them
  std::vector<UpdateTime> update_times;  // per chunk
  // Per chunk: its records' second slot in the host arena, where they are at home there and commits are rare. An update
  // in the backward goes from the slot they are in to this one, and is undone by staying. Offsets of -1: it has none.
  // Empty: none has one.
  std::vector<HostSlot> other_slots;
  std::array<std::vector<bool>, kUpdateHalves> prefetched;  // by UpdateHalf, per chunk: read by the unit before
  std::vector<int64_t> kept_offset;  // per partition: its place on the device when it is kept there, else -1
  std::vector<TensorHome> tensors;   // [tensor x micro_batches + micro-batch]
  std::vector<int64_t> graphs;  // per visit: where the graphs of its micro-batches are kept, in turn; -1: they are not
  std::vector<OpenSlot> open_slots;
  std::vector<int> tensor_open_slots;     // [tensor x micro_batches + micro-batch]; -1: one visit takes it
  std::vector<int> partition_open_slots;  // per partition; -1: one visit uses it
  Ring device_weights, device_open, device_boundary;
  Ring host_update, host_staging;      // of updates; of weights, and of records at home on the device
  Ring host_gradients;                 // closed gradients on their way to their update, or from the device to NVMe
  Ring host_boundary;                  // boundary tensors between the device and NVMe
  std::vector<int64_t> scratch_bytes;  // of the store's scratch extents
  int64_t device_arena_bytes = 0;      // planned part and workspace
  int64_t workspace_offset = 0;
  int64_t host_arena_bytes = 0;
  int64_t table_bytes = 0;  // programs, the store's table, queues: host memory beside the mapping
  int commit_interval = 1;
  // Where `auto` chose the interval by speeds: the other one, and what a step is predicted to take with it.
  struct OtherCommits {
    int interval = 1;
    double step_ms = 0;
  };
  std::optional<OtherCommits> other_commits;
  int64_t disk_bytes = 0;
  double written_bytes_per_step = 0;  // to the drives: records with their padding, tables of commits
  int64_t undone_bytes = 0;           // that a step writes besides, whose updates in the backward are undone
  std::vector<UseRow> uses;           // per tier and use; host and device sum to at most their budgets
  std::vector<MoveRow> moves;         // per step, as StepLanes counts them; of drives also their padding
  HomesBy homes_by = HomesBy::kOrder;
  HostStateOrder host_state = HostStateOrder::kNeededFirst;
  Placement named;                 // homes of whole groups that the search named, where the options leave them open
  std::optional<Busiest> busiest;  // by what takes the longest alone, where speeds are known

  explicit Plan(Geometry g) : geometry(std::move(g)) {}

  UpdateLayout update_layout(int chunk) const;
  bool speculated(int chunk) const { return update_times[chunk] == UpdateTime::kEarly; }
  bool any_speculated() const;
  bool has_other_slot(int chunk) const { return !other_slots.empty() && other_slots[chunk].state >= 0; }
  // What has two slots is in the other one from now on.
  void move_to_other_slots();
  bool is_prefetched(UpdateHalf half, int chunk) const { return prefetched[static_cast<size_t>(half)][chunk]; }
  TensorHome tensor(int index, int micro_batch) const { return tensors[index * options.micro_batches + micro_batch]; }
  // kNowhere: there is one contribution alone.
  OpenSlot tensor_open(int index, int micro_batch) const {
    return open_slot(tensor_open_slots[index * options.micro_batches + micro_batch]);
  }
  OpenSlot partition_open(int p) const { return open_slot(partition_open_slots[p]); }
  bool keeps_graph(int visit) const { return graphs[visit] >= 0; }
  int64_t graph_bytes(int visit) const { return round_up(options.graph_bytes[visit], kDeviceAlignmentBytes); }
  int scratch_extent(int chunk) const { return static_cast<int>(chunks[chunk].gradient_offset); }  // home on NVMe
  RecordLayout record(int chunk, Group group) const;    // of a chunk's weights or state
  int64_t record_bytes(int chunk, Group group) const;   // padding included
  int64_t payload_bytes(int chunk, Group group) const;  // without
  int64_t drive_bytes(const Hop& hop) const;  // that a swap_in or swap_out moves: a record, or a scratch extent
  int64_t gradient_bytes(int64_t elements) const { return elements * bytes_of(options.gradient_dtype); }
  // A chunk's closed gradient in whole blocks of a drive: in a buffer of its ring, and on NVMe.
  int64_t gradient_block_bytes(int chunk) const {
    return round_up(gradient_bytes(geometry.chunks()[chunk].elements), kPlaneAlignmentBytes);
  }
  int64_t weights_bytes(int64_t elements) const { return elements * bytes_of(weights_dtype(options.precision)); }
  // Where a chunk's weights lie in the device arena; its partition is kept there.
  int64_t kept_weights_offset(int chunk) const {
    const Chunk& piece = geometry.chunks()[chunk];
    return kept_offset[piece.partition] + weights_bytes(piece.first);
  }
  std::string table() const;         // what is printed before training starts
  std::string homes_words() const;   // how homes were chosen, and why; for people
  std::string update_words() const;  // when chunks are updated; for people

 private:
  OpenSlot open_slot(int slot) const { return slot >= 0 ? open_slots[slot] : OpenSlot{.home = Home::kNowhere}; }
};

// A plan of one's model, and what it was asked of: to look for it takes seconds for a large one.
struct MadePlan {
  PlanOptions asked;
  Plan plan;
};

// What a store that keeps this plan's records takes of the host.
TableNeeds table_needs(const Plan& plan);

// Throws BudgetError when the budgets cannot hold it: names the smallest device budget and the smallest host budget
// that would do, each with the other as given (or that none would, and the smallest pair). ConfigError where an
// update mode does not go with the commit interval or with a forced home.
Plan make_plan(const ModelSpec& model, const PlanOptions& options);
// The same, and nothing where the budgets cannot hold it: what would do is not looked for.
std::optional<Plan> find_plan(const ModelSpec& model, const PlanOptions& options);
// Of a chunk in the plans that are tried first: as given, or derived from the host budget. Tells at once about how many
// chunks a plan will have. Nothing where they are so many that none is tried.
std::optional<int64_t> wanted_chunk_elements(const ModelSpec& model, const PlanOptions& options);

}  // namespace sluice
