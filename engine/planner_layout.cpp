// The planner's last part: offsets for every home and ring, and the tables that people read.
#include <algorithm>
#include <array>
#include <string_view>

#include "core/errors.h"
#include "engine/planner_impl.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

// Hands out consecutive ranges of an arena.
class Layout {
 public:
  int64_t take(int64_t bytes, int64_t alignment) {
    const int64_t at = round_up(end_, alignment);
    end_ = at + bytes;
    return at;
  }
  Ring ring(int64_t bytes, int64_t alignment) { return {take(bytes, alignment), bytes}; }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

// Sums bytes by name, in the order of first use.
class Uses {
 public:
  explicit Uses(std::vector<UseRow>& rows) : rows_(rows) {}
  void add(Tier tier, const char* use, int64_t bytes) {
    for (UseRow& row : rows_) {
      if (row.tier == tier && row.use == use) {
        row.bytes += bytes;
        return;
      }
    }
    rows_.push_back({tier, use, bytes});
  }
  int64_t sum(Tier tier) const {
    int64_t bytes = 0;
    for (const UseRow& row : rows_) bytes += row.tier == tier ? row.bytes : 0;
    return bytes;
  }

 private:
  std::vector<UseRow>& rows_;
};

}  // namespace

void Planner::Impl::assign_offsets(Plan& plan, int64_t host_bytes) const {
  assign_device(plan);
  Layout host;
  plan.host_update = host.ring(plan.host_update.bytes, kPlaneAlignmentBytes);
  plan.host_staging = host.ring(plan.host_staging.bytes, kPlaneAlignmentBytes);
  plan.host_gradients = host.ring(plan.host_gradients.bytes, kPlaneAlignmentBytes);
  plan.host_boundary = host.ring(plan.host_boundary.bytes, kPlaneAlignmentBytes);
  for (int c : plan.update_order) {
    ChunkHomes& homes = plan.chunks[c];
    if (homes.weights == Home::kHost) {
      homes.weights_offset = host.take(plan.record_bytes(c, Group::kWeights), kPlaneAlignmentBytes);
    }
    if (homes.state == Home::kHost) {
      homes.state_offset = host.take(plan.record_bytes(c, Group::kState), kPlaneAlignmentBytes);
    }
  }
  for (int c : plan.update_order) {
    if (plan.chunks[c].gradient == Home::kHost) {
      plan.chunks[c].gradient_offset = host.take(gradient_home_bytes(plan, c), kDeviceAlignmentBytes);
    }
  }
  for (OpenSlot& slot : plan.open_slots) {
    if (slot.home == Home::kHost) slot.offset = host.take(slot.bytes(), kDeviceAlignmentBytes);
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].home == Home::kHost) {
      plan.tensors[i].offset = host.take(tensor_bytes(tensor_of(i)), kDeviceAlignmentBytes);
    }
  }
  plan.host_arena_bytes = round_up(host.end(), kPlaneAlignmentBytes);
  choose_update_times(plan, host_bytes);
  choose_prefetched(plan);
  assign_scratch(plan);
}

// Extents of the store's scratch: gradients in the order of their updates, then tensors.
void Planner::Impl::assign_scratch(Plan& plan) const {
  const auto take = [&plan](int64_t bytes) {
    plan.scratch_bytes.push_back(bytes);
    return static_cast<int64_t>(plan.scratch_bytes.size()) - 1;
  };
  for (int c : plan.update_order) {
    ChunkHomes& homes = plan.chunks[c];
    if (homes.gradient == Home::kNvme) homes.gradient_offset = take(plan.gradient_block_bytes(c));
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].home == Home::kNvme) plan.tensors[i].offset = take(tensor_block_bytes(tensor_of(i)));
  }
  plan.scratch_bytes.shrink_to_fit();  // a table of ours: counted by its size
}

// How often to commit, and which chunks may be updated in the backward already. Without a wish a share as large as the
// backward's part of the compute, so that the drive has the same to do beside either pass; make_plan tries others where
// it can predict what they take. With rare commits they take memory of their own: only where `auto` can be told
// whether it pays.
void Planner::Impl::choose_update_times(Plan& plan, int64_t host_bytes) const {
  constexpr double kBackwardShare = 0.75;  // forward 1, recompute 1, backward 2
  const bool state_on_nvme = std::any_of(plan.chunks.begin(), plan.chunks.end(),
                                         [](const ChunkHomes& homes) { return homes.state == Home::kNvme; });
  const bool must_undo = options_.update == UpdateMode::kSpeculative || options_.update == UpdateMode::kReplay;
  plan.commit_interval = options_.commit_interval > 0 ? options_.commit_interval
                         : state_on_nvme || must_undo ? 1
                                                      : kCommitRarely;
  const double share = plan.options.speculated_share.value_or(kBackwardShare);
  if (plan.commit_interval == 1 && options_.update != UpdateMode::kDeferred) {
    spread_early_updates(plan, options_.update == UpdateMode::kReplay ? 1 : share);
  } else if (options_.update == UpdateMode::kAuto && (options_.speeds || plan.options.speculated_share)) {
    take_other_slots(plan, host_bytes, share);
  }
}

// In what homes and rings leave of host memory, for as many chunks as have room there.
void Planner::Impl::take_other_slots(Plan& plan, int64_t host_bytes, double share) const {
  const auto may_move = [&plan](int c) {
    return plan.chunks[c].state == Home::kHost && plan.chunks[c].weights == Home::kHost;
  };
  const auto records_bytes = [&plan](int c) {
    return plan.record_bytes(c, Group::kState) + plan.record_bytes(c, Group::kWeights);
  };
  int64_t room = host_bytes / kPlaneAlignmentBytes * kPlaneAlignmentBytes - plan.host_arena_bytes, all = 1;
  for (const int c : plan.update_order) all += may_move(c) ? records_bytes(c) : 0;
  spread_early_updates(plan, std::min(share, static_cast<double>(room) / static_cast<double>(all)));
  if (!plan.any_speculated()) return;
  plan.other_slots.assign(plan.chunks.size(), {});
  for (const int c : plan.update_order) {
    if (!plan.speculated(c)) continue;
    const int64_t bytes = records_bytes(c);
    if (!may_move(c) || bytes > room) {
      plan.update_times[c] = UpdateTime::kDeferred;
      continue;
    }
    plan.other_slots[c] = {.state = plan.host_arena_bytes,
                           .weights = plan.host_arena_bytes + plan.record_bytes(c, Group::kState)};
    plan.host_arena_bytes += bytes;
    room -= bytes;
  }
  if (!plan.any_speculated()) plan.other_slots.clear();
}

// Half of the deferred elements are those that forward needs first, whose gradients close last: their reads are done
// while the backward ends. The others are spread evenly, so that the drive has something to do beside every visit.
void Planner::Impl::spread_early_updates(Plan& plan, double share) {
  const auto all = static_cast<double>(plan.geometry.padded_elements());
  const double first = (1 - share) / 2, of_rest = share / (1 - first);
  double seen = 0, saved = 0;  // elements; the latter are what early ones are taken from
  for (const int c : plan.update_order) {
    const auto elements = static_cast<double>(plan.geometry.chunks()[c].elements);
    const bool among_first = seen < first * all;
    seen += elements;
    if (among_first) continue;
    saved += of_rest * elements;
    if (share <= 0 || saved < elements) continue;
    saved -= elements;
    plan.update_times[c] = UpdateTime::kEarly;
  }
}

// What can be read ahead without wrapping: into the buffers that the next unit's first updates will take.
void Planner::Impl::choose_prefetched(Plan& plan) {
  for (const UpdateHalf half : {UpdateHalf::kAll, UpdateHalf::kDeferred}) {
    std::vector<bool>& prefetched = plan.prefetched[static_cast<size_t>(half)];
    prefetched.assign(plan.chunks.size(), false);
    int64_t bytes = 0;
    for (const int c : plan.update_order) {
      if (half == UpdateHalf::kDeferred && plan.speculated(c)) continue;
      bytes += plan.update_layout(c).bytes;
      if (bytes > plan.host_update.bytes) break;
      prefetched[c] = true;
    }
  }
}

void Planner::Impl::assign_device(Plan& plan) const {
  Layout device;
  plan.device_weights = device.ring(plan.device_weights.bytes, kDeviceAlignmentBytes);
  plan.device_open = device.ring(plan.device_open.bytes, kDeviceAlignmentBytes);
  plan.device_boundary = device.ring(plan.device_boundary.bytes, kDeviceAlignmentBytes);
  for (size_t p = 0; p < model_.partitions.size(); ++p) {
    const int partition = static_cast<int>(p);
    if (plan.kept_offset[p] >= 0) {
      plan.kept_offset[p] = device.take(kept_bytes(plan, partition), kDeviceAlignmentBytes);
    }
  }
  for (OpenSlot& slot : plan.open_slots) {
    if (slot.home == Home::kDevice) slot.offset = device.take(slot.bytes(), kDeviceAlignmentBytes);
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int tensor = tensor_of(i);
    if (plan.tensors[i].home == Home::kDevice) {
      plan.tensors[i].offset = device.take(tensor_bytes(tensor), kDeviceAlignmentBytes);
    }
  }
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    if (plan.chunks[c].gradient == Home::kDevice) {
      plan.chunks[c].gradient_offset =
          device.take(gradient_home_bytes(plan, static_cast<int>(c)), kDeviceAlignmentBytes);
    }
    if (plan.chunks[c].updated_on_device()) {
      plan.chunks[c].state_offset =
          device.take(plan.record_bytes(static_cast<int>(c), Group::kState), kDeviceAlignmentBytes);
    }
  }
  for (int visit = 0; visit < static_cast<int>(model_.visits.size()); ++visit) {
    if (!plan.keeps_graph(visit)) continue;
    plan.graphs[visit] = device.take(options_.micro_batches * plan.graph_bytes(visit), kDeviceAlignmentBytes);
  }
  plan.workspace_offset = round_up(device.end(), kDeviceAlignmentBytes);
  plan.device_arena_bytes = round_up(plan.workspace_offset + options_.workspace_bytes, kPlaneAlignmentBytes);
}

void Planner::Impl::describe(Plan& plan) const {
  plan.disk_bytes = RecordStore::file_bytes(plan.geometry, options_.format(), options_.drives, plan.scratch_bytes);
  Uses uses(plan.uses);
  for (size_t p = 0; p < model_.partitions.size(); ++p) {
    const int partition = static_cast<int>(p);
    if (plan.kept_offset[p] >= 0) uses.add(Tier::kDevice, "weights kept", kept_bytes(plan, partition));
  }
  for (const OpenSlot& slot : plan.open_slots) {
    uses.add(slot.home == Home::kHost ? Tier::kHost : Tier::kDevice, "open gradients (shared)", slot.bytes());
  }
  uses.add(Tier::kDevice, "weights ring", plan.device_weights.bytes);
  uses.add(Tier::kDevice, "open gradients ring", plan.device_open.bytes);
  uses.add(Tier::kDevice, "boundary ring", plan.device_boundary.bytes);
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const int chunk = static_cast<int>(c);
    const ChunkHomes& homes = plan.chunks[c];
    const int64_t weights = plan.record_bytes(chunk, Group::kWeights), state = plan.record_bytes(chunk, Group::kState);
    if (homes.weights == Home::kHost) uses.add(Tier::kHost, "weights", weights);
    if (homes.state == Home::kHost) uses.add(Tier::kHost, "optimizer state", state);
    if (homes.state == Home::kDevice) uses.add(Tier::kDevice, "optimizer state", state);
    if (plan.has_other_slot(chunk)) uses.add(Tier::kHost, "second slots of early updates", weights + state);
    if (homes.gradient == Home::kHost) uses.add(Tier::kHost, "closed gradients", gradient_home_bytes(plan, chunk));
    if (homes.gradient == Home::kDevice) uses.add(Tier::kDevice, "closed gradients", gradient_home_bytes(plan, chunk));
    if (homes.gradient == Home::kNvme) uses.add(Tier::kNvme, "closed gradients", plan.gradient_block_bytes(chunk));
    uses.add(Tier::kNvme, homes.weights == Home::kNvme ? "weights (home), two slots" : "weights (committed), two slots",
             2 * weights);
    uses.add(
        Tier::kNvme,
        homes.state == Home::kNvme ? "optimizer state (home), two slots" : "optimizer state (committed), two slots",
        2 * state);
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int tensor = tensor_of(i);
    const Home home = plan.tensors[i].home;
    uses.add(home == Home::kHost     ? Tier::kHost
             : home == Home::kDevice ? Tier::kDevice
                                     : Tier::kNvme,
             "activation checkpoints", home == Home::kNvme ? tensor_block_bytes(tensor) : tensor_bytes(tensor));
  }
  for (int visit = 0; visit < static_cast<int>(model_.visits.size()); ++visit) {
    if (!plan.keeps_graph(visit)) continue;
    uses.add(Tier::kDevice, "graphs kept (no recompute)", options_.micro_batches * plan.graph_bytes(visit));
  }
  uses.add(Tier::kDevice, "workspace", options_.workspace_bytes);
  if (options_.own_device_bytes > 0) uses.add(Tier::kDevice, "progress of kernels", options_.own_device_bytes);
  uses.add(Tier::kNvme, "headers, tables, alignment", plan.disk_bytes - uses.sum(Tier::kNvme));
  uses.add(Tier::kHost, "update ring", plan.host_update.bytes);
  uses.add(Tier::kHost, "staging ring", plan.host_staging.bytes);
  uses.add(Tier::kHost, "closed gradients ring", plan.host_gradients.bytes);
  uses.add(Tier::kHost, "boundary ring", plan.host_boundary.bytes);
  uses.add(Tier::kHost, "tables", plan.table_bytes);
}

// What a step in the middle of a run moves: nothing skipped, states read ahead, commits spread over their interval. By
// link, then by what it is; drives move whole blocks, so to the bytes that count come those which fill the last ones.
void Planner::Impl::count_moves(Plan& plan, const UnitProgram& steady) const {
  constexpr std::array kLinks = {"nvme read", "nvme write", "upload", "download"};                  // by Lane
  constexpr std::array<std::string_view, kGroupCount + 1> kWhat = {"weights", "state", "gradient",  // by Group
                                                                   "activations and their gradients",
                                                                   "padding to whole blocks"};
  std::array<std::array<int64_t, kWhat.size()>, kLinks.size()> bytes{};
  const UnitKind kind = unclipped_kind(plan);
  const int64_t table =
      RecordStore::commit_bytes(static_cast<int64_t>(plan.chunks.size()), plan.options.progress_bytes);
  plan.written_bytes_per_step = static_cast<double>(table) / plan.commit_interval;
  for (const Hop& hop : steady.program.hops()) {
    const auto lane = static_cast<size_t>(hop.lane());
    if (lane >= kLinks.size() || hop.verb == Verb::kCommit || !due_in_steady_step(kind, hop)) continue;
    const int64_t every = hop.when == When::kCommitDirty ? plan.commit_interval : 1;
    const bool by_drive = hop.lane() == Lane::kRead || hop.lane() == Lane::kWrite;
    const int64_t moved = by_drive ? plan.drive_bytes(hop) : hop.bytes;
    bytes[lane][static_cast<size_t>(hop.group)] += hop.bytes / every;
    bytes[lane].back() += (moved - hop.bytes) / every;
    if (hop.lane() != Lane::kWrite) continue;
    plan.written_bytes_per_step += static_cast<double>(moved) / static_cast<double>(every);
    const bool runs_again = plan.options.update == UpdateMode::kReplay && hop.when == When::kAlways;
    if (hop.when == When::kSpeculating || runs_again) plan.undone_bytes += moved;
  }
  for (size_t link = 0; link < kLinks.size(); ++link) {
    for (size_t what = 0; what < kWhat.size(); ++what) {
      if (bytes[link][what] > 0) plan.moves.push_back({kLinks[link], std::string(kWhat[what]), bytes[link][what]});
    }
  }
}

}  // namespace sluice
