// Programs are legal by construction: checked here without the ranges that emit() was told, from what hops do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>

#include "core/errors.h"
#include "engine/passing_tensors.h"
#include "engine/planner.h"
#include "engine/step.h"
#include "tests/engine/toy_model.h"

namespace sluice::testing {
namespace {

constexpr size_t kMostHops = 8192;
using HopSet = std::bitset<kMostHops>;

enum class Access { kReads, kFills };
struct Touch {
  Place place;
  int64_t begin, end;
  Access access;
};

std::vector<Touch> swap_touches(const Plan& plan, const Hop& hop) {
  const bool in = hop.verb == Verb::kSwapIn;
  const Access memory = in ? Access::kFills : Access::kReads, drive = in ? Access::kReads : Access::kFills;
  const auto list = [&](int64_t bytes, Place place, int64_t at) {
    return std::vector<Touch>{{Place::kHost, hop.host_offset, hop.host_offset + bytes, memory},
                              {place, at, at + 1, drive}};
  };
  if (const int extent = hop.scratch_extent; extent >= 0)
    return list(plan.scratch_bytes[extent], Place::kScratch, extent);
  const int64_t elements = plan.geometry.chunks()[hop.chunk].elements;
  return list(record_layout(plan.options.precision, hop.group, elements).bytes, Place::kStore,
              2 * hop.chunk + static_cast<int>(hop.group));
}

std::vector<Touch> compute_touches(const ModelSpec& model, const Plan& plan, const UnitProgram& unit,
                                   const ComputeOperands& turn) {
  std::vector<Touch> list;
  const auto add = [&list](Place place, int64_t at, int64_t bytes, Access access) {
    list.push_back({place, at, at + bytes, access});
  };
  const VisitSpec& visit = model.visits[turn.visit];
  const TurnAddresses at = addresses_of(model, unit, turn);
  const bool backward = turn.pass == Pass::kBackward;
  const auto add_each = [&](std::span<const int64_t> addresses, const auto& bytes, Access access) {
    for (size_t i = 0; i < addresses.size(); ++i) add(Place::kDevice, addresses[i], bytes(i), access);
  };
  const auto add_sums = [&](std::span<const int64_t> addresses, const std::vector<int>& tensors, Access access) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i] >= 0) add(Place::kDevice, addresses[i], model.tensors[tensors[i]].elements * 4, access);
    }
  };
  const auto elements = [&](size_t i) { return plan.geometry.partitions()[visit.partitions[i]].elements; };
  const auto taken = [&](size_t i) { return model.tensors[visit.takes[i]].bytes(); };
  const auto given = [&](size_t i) { return model.tensors[visit.gives[i]].bytes(); };
  add_each(
      at.weights, [&](size_t i) { return plan.weights_bytes(elements(i)); }, Access::kReads);
  add_each(at.inputs, taken, Access::kReads);
  add_each(at.outputs, given, backward ? Access::kReads : Access::kFills);
  add_each(at.input_gradients, taken, Access::kFills);
  add_each(
      at.open, [&](size_t i) { return elements(i) * 4; }, Access::kFills);
  add_sums(at.input_sums, visit.takes, Access::kFills);
  add_sums(at.output_sums, visit.gives, Access::kReads);
  if (turn.graph >= 0) {
    add(Place::kDevice, turn.graph, plan.graph_bytes(turn.visit), backward ? Access::kReads : Access::kFills);
  }
  return list;
}

// What verifies or seals a record reads or sets the store's checksums of it: no write of it may start meanwhile.
Touch checksums_touched(int chunk, Group group) {
  const int64_t record = 2 * int64_t{chunk} + static_cast<int>(group);
  return {Place::kStore, record, record + 1, Access::kReads};
}

// The step's scale, and behind it the norm's part of each partition.
Touch scale_touched(Access access) { return {Place::kControl, 0, 1, access}; }
Touch norm_parts_touched(int64_t first, int64_t count, Access access) {
  return {Place::kControl, 1 + first, 1 + first + count, access};
}

// Closed chunks lie in the open sum's range, which the hop fills; or at home on the device.
std::vector<Touch> close_touches(const Plan& plan, const Hop& hop) {
  const Partition& partition = plan.geometry.partitions()[hop.partition];
  std::vector<Touch> list = {
      {Place::kDevice, hop.device_offset, hop.device_offset + partition.elements * 4, Access::kFills},
      norm_parts_touched(hop.partition, 1, Access::kFills)};
  for (const int c : partition.chunks()) {
    const ChunkHomes& homes = plan.chunks[c];
    if (homes.gradient != Home::kDevice) continue;
    const int64_t end = homes.gradient_offset + plan.gradient_bytes(plan.geometry.chunks()[c].elements);
    list.push_back({Place::kDevice, homes.gradient_offset, end, Access::kFills});
  }
  return list;
}

std::vector<Touch> update_touches(const Plan& plan, const UnitProgram& unit, const Hop& hop) {
  const UpdateOperands& operands = unit.updates[hop.operands];
  const int64_t elements = plan.geometry.chunks()[hop.chunk].elements;
  const auto record = [&](Group group) { return record_layout(plan.options.precision, group, elements).bytes; };
  const int64_t weights =
      operands.place == Place::kHost ? record(Group::kWeights) : plan.weights_bytes(elements);  // beside others' there
  const auto touch = [&](int64_t at, int64_t bytes, Access access) {
    return Touch{operands.place, at, at + bytes, access};
  };
  const bool moves = hop.when == When::kSpeculating && plan.has_other_slot(hop.chunk);
  const HostSlot to = moves ? plan.other_slots[hop.chunk] : HostSlot{operands.state, operands.weights};
  std::vector<Touch> list = {
      touch(operands.state, record(Group::kState), Access::kReads), touch(operands.weights, weights, Access::kReads),
      touch(to.state, record(Group::kState), Access::kFills), touch(to.weights, weights, Access::kFills),
      touch(operands.gradient, plan.gradient_bytes(elements), Access::kReads)};
  if (const int extent = operands.gradient_extent; extent >= 0)
    list.push_back({Place::kScratch, extent, extent + 1, Access::kReads});
  if (hop.when != When::kSpeculating) list.push_back(scale_touched(Access::kReads));
  if (operands.place == Place::kHost && !moves) {  // one to the other slot takes no sums
    for (const Group group : {Group::kWeights, Group::kState}) list.push_back(checksums_touched(hop.chunk, group));
  }
  return list;
}

// What a hop touches, told from its own fields and side tables.
std::vector<Touch> touches(const ModelSpec& model, const Plan& plan, const UnitProgram& unit, const Hop& hop) {
  std::vector<Touch> list;
  const auto add = [&list](Place place, int64_t at, int64_t bytes, Access access) {
    list.push_back({place, at, at + bytes, access});
  };
  switch (hop.verb) {
    case Verb::kSwapIn:
    case Verb::kSwapOut:
      return swap_touches(plan, hop);
    case Verb::kUpload:
    case Verb::kDownload: {
      const bool up = hop.verb == Verb::kUpload;
      add(Place::kHost, hop.host_offset, hop.bytes, up ? Access::kReads : Access::kFills);
      add(Place::kDevice, hop.device_offset, hop.bytes, up ? Access::kFills : Access::kReads);
      break;
    }
    case Verb::kUpdate:
      return update_touches(plan, unit, hop);
    case Verb::kVerify:
    case Verb::kSeal:
      add(Place::kHost, hop.host_offset, hop.bytes, Access::kReads);
      if (hop.scratch_extent < 0) {
        list.push_back(checksums_touched(hop.chunk, hop.group));
        break;
      }
      add(Place::kScratch, hop.scratch_extent, 1, hop.verb == Verb::kSeal ? Access::kFills : Access::kReads);
      break;
    case Verb::kClose:
      return close_touches(plan, hop);
    case Verb::kCommit:
      add(Place::kStore, 0, 2 * static_cast<int64_t>(plan.chunks.size()), Access::kReads);
      break;
    case Verb::kClip:
      return {norm_parts_touched(0, static_cast<int64_t>(model.partitions.size()), Access::kReads),
              scale_touched(Access::kFills)};
    case Verb::kCompute:
      return compute_touches(model, plan, unit, unit.turns[hop.operands]);
  }
  return list;
}

// Every two hops that touch the same bytes, one of them filling, are ordered by predecessors alone.
void expect_legal(const ModelSpec& model, const Plan& plan, const UnitProgram& unit) {
  const auto hops = unit.program.hops();
  ASSERT_LT(hops.size(), kMostHops);
  std::vector<HopSet> before(hops.size());
  // Earlier touches: a reader minds only those that fill.
  std::vector<std::pair<Touch, int>> seen[kPlaceCount][2];
  const int64_t arena[] = {2 * static_cast<int64_t>(plan.chunks.size()), plan.host_arena_bytes, plan.workspace_offset,
                           1 + static_cast<int64_t>(model.partitions.size()),
                           static_cast<int64_t>(plan.scratch_bytes.size())};
  for (size_t hop = 0; hop < hops.size(); ++hop) {
    for (int32_t p : unit.program.predecessors(static_cast<int>(hop))) {
      ASSERT_LT(p, static_cast<int>(hop));
      before[hop] |= before[p];
      before[hop].set(p);
    }
    for (const Touch& touch : touches(model, plan, unit, hops[hop])) {
      ASSERT_GE(touch.begin, 0);
      ASSERT_LE(touch.end, arena[static_cast<int>(touch.place)]) << Program::describe(hops[hop], "");
      auto& [readers, fillers] = seen[static_cast<int>(touch.place)];
      const auto expect_ordered = [&](const std::vector<std::pair<Touch, int>>& others) {
        for (const auto& [other, earlier] : others) {
          if (other.end <= touch.begin || touch.end <= other.begin) continue;
          ASSERT_TRUE(earlier == static_cast<int>(hop) || before[hop].test(earlier))
              << Program::describe(hops[earlier], "") << " and " << Program::describe(hops[hop], "")
              << " are not ordered";
        }
      };
      expect_ordered(fillers);
      if (touch.access == Access::kFills) {
        expect_ordered(readers);
        // Whoever comes after this one comes after them.
        const auto covered = [&](const std::pair<Touch, int>& other) {
          return touch.begin <= other.first.begin && other.first.end <= touch.end;
        };
        std::erase_if(fillers, covered);
        std::erase_if(readers, covered);
      }
      (touch.access == Access::kFills ? fillers : readers).push_back({touch, static_cast<int>(hop)});
    }
  }
}

// A random legal way to spread homes, and budgets from the smallest to generous ones.
PlanOptions random_options(uint64_t seed, const ModelSpec& model) {
  using enum HomeKind;
  PlanOptions options{.device_bytes = 64 * kMiB,
                      .host_bytes = 64 * kMiB,
                      .workspace_bytes = static_cast<int64_t>(seed % 5) * 1000,
                      .micro_batches = 1 + static_cast<int>(seed / 3 % 4),
                      .chunk_elements = 128 << seed % 4};
  if (seed % 7 == 0) options.chunk_elements = 301;
  constexpr HomeKind kWeights[] = {kAuto, kHost, kNvme, kHostAndDevice, kNvmeAndDevice};
  options.placement.weights = {{kWeights[seed % 5], 1}};
  options.placement.state = {{seed % 2 ? kNvme : kAuto, 1}};
  constexpr HomeKind kGradients[] = {kDevice, kAuto, kNvme}, kActivations[] = {kHost, kAuto, kNvme, kAuto};
  options.placement.gradient = {{kGradients[seed % 3], 1}};
  options.placement.activations = {{kActivations[seed % 4], 1}};
  if (seed % 8 == 0) options.placement.gradient = {{kNvme, 0.4}, {kHost, 0.6}};
  if (seed % 6 == 5) {
    options.placement.weights = {};
    options.placement.state = {{kNvme, 0.3}, {kDevice, 0.5}, {kHost, 0.2}};
    options.placement.gradient = {};
  }
  if (seed % 9 == 0) options.placement.activations = {{kNvme, 0.3}, {kDevice, 0.3}, {kHost, 0.4}};
  options.update = static_cast<UpdateMode>(seed / 2 % 4);
  if (options.update == UpdateMode::kReplay) options.placement.gradient = {};
  if (seed % 3 == 1) options.speculated_share = static_cast<double>(seed % 10) / 10;
  if (seed % 2) options.graph_bytes.assign(model.visits.size(), 700);
  const Planner planner(model, options);
  if (seed % 4 == 0) options.host_bytes = planner.smallest_host(options.device_bytes).value();
  if (seed % 4 <= 1) options.device_bytes = planner.smallest_device(options.host_bytes).value();
  return options;
}

TEST(Programs, of_random_lists_order_every_two_hops_that_touch_the_same_bytes) {
  for (uint64_t seed = 1; seed <= 60; seed += SLUICE_EVERY_NTH_LIST) {
    const ModelSpec model = random_model(seed, Precision::kBf16);
    const Plan plan = make_plan(model, random_options(seed, model));
    for (UnitKind kind : unit_kinds(plan)) {
      expect_legal(model, plan, build_unit(model, plan, kind));
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " unit " << static_cast<int>(kind);
    }
  }
}

// Budgets are ample: to search for the smallest ones takes most of the time above.
TEST(Programs, of_thousands_of_random_lists_are_legal_in_every_variant_of_a_unit) {
  for (uint64_t seed = 1000; seed < 3200; seed += SLUICE_EVERY_NTH_LIST) {
    const ModelSpec model = random_model(seed, seed % 2 ? Precision::kBf16 : Precision::kFp32);
    PlanOptions options{.device_bytes = 64 * kMiB, .host_bytes = 64 * kMiB, .micro_batches = 1 + int(seed % 4)};
    options.chunk_elements = 200 + static_cast<int64_t>(seed % 1000);
    options.update = static_cast<UpdateMode>(seed % 4);
    const bool replay = options.update == UpdateMode::kReplay;
    constexpr HomeKind kGradients[] = {HomeKind::kDevice, HomeKind::kAuto, HomeKind::kNvme};
    options.placement.gradient = {{replay ? HomeKind::kAuto : kGradients[seed % 3], 1}};
    if (seed % 5 < 2) options.placement.activations = {{HomeKind::kNvme, 1}};
    if (seed % 2) options.graph_bytes.assign(model.visits.size(), static_cast<int64_t>(seed));
    const Plan plan = make_plan(model, options);
    for (UnitKind kind : unit_kinds(plan)) {
      expect_legal(model, plan, build_unit(model, plan, kind));
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " unit " << static_cast<int>(kind);
    }
  }
}

TEST(Programs, of_early_updates_between_rare_commits_are_legal_with_two_slots_for_some_chunks_or_all) {
  int some = 0, all = 0;
  for (uint64_t seed = 1; seed <= 200; seed += SLUICE_EVERY_NTH_LIST) {
    const ModelSpec model = random_model(seed, Precision::kBf16);
    PlanOptions options{.device_bytes = 64 * kMiB, .host_bytes = 64 * kMiB, .micro_batches = 1 + int(seed % 4)};
    options.chunk_elements = 200 + static_cast<int64_t>(seed % 1000);
    options.commit_interval = 10;
    options.speculated_share = static_cast<double>(1 + seed % 4) / 4;
    options.placement.weights = {{seed % 3 == 0 ? HomeKind::kHostAndDevice : HomeKind::kHost, 1}};
    options.placement.state = {{HomeKind::kHost, seed % 5 == 0 ? 0.5 : 1}};
    if (seed % 5 == 0) options.placement.state.push_back({HomeKind::kNvme, 0.5});
    options.placement.gradient = {{seed % 7 == 0 ? HomeKind::kNvme : HomeKind::kAuto, 1}};
    Plan plan = make_plan(model, options);
    size_t moving = 0;
    for (int c = 0; c < std::ssize(plan.chunks); ++c) moving += plan.has_other_slot(c) ? 1 : 0;
    if (moving > 0) ++(moving < plan.chunks.size() ? some : all);
    for (int where = 0; where < 2; ++where, plan.move_to_other_slots()) {
      for (const UnitKind kind : unit_kinds(plan)) {
        expect_legal(model, plan, build_unit(model, plan, kind));
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " unit " << static_cast<int>(kind);
      }
    }
  }
  EXPECT_GT(some, 0);
  EXPECT_GT(all, 0);
}

// Tensors of unlike sizes on their way to NVMe and back; some are read again long after the ring has come round.
TEST(Programs, pass_tensors_through_rings_of_any_depth) {
  int later_writes = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    ModelSpec model = random_model(seed, Precision::kBf16);
    for (size_t t = 0; t < model.tensors.size(); ++t) {
      model.tensors[t].elements = 2048 * static_cast<int64_t>(1 + (seed + t * t) % 5);
    }
    for (const size_t before_last : {1, 2}) {
      if (before_last >= model.visits.size()) continue;
      model.visits.front().gives.push_back(static_cast<int>(model.tensors.size()));
      model.visits[model.visits.size() - before_last].takes.push_back(static_cast<int>(model.tensors.size()));
      model.tensors.push_back({.name = fmt::format("far {}", before_last), .elements = 4096});
    }
    PlanOptions options{.device_bytes = 64 * kMiB, .host_bytes = 64 * kMiB, .micro_batches = 1 + int(seed % 3)};
    options.placement.activations = {{HomeKind::kNvme, 1}};
    options.update = seed % 2 ? UpdateMode::kDeferred : UpdateMode::kSpeculative;
    Plan plan = make_plan(model, options);
    const int64_t all = plan.host_boundary.bytes, largest = 5 * 4096;
    for (plan.host_boundary.bytes = largest; plan.host_boundary.bytes <= all; plan.host_boundary.bytes += 3 * 4096) {
      later_writes += plan.host_boundary.bytes >= passing_bytes(model, plan) ? 1 : 0;
      for (const UnitKind kind : unit_kinds(plan)) {
        expect_legal(model, plan, build_unit(model, plan, kind));
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " ring " << plan.host_boundary.bytes;
      }
    }
  }
  EXPECT_GT(later_writes, 24);
}

// The first reads for the next unit wait for the oldest buffers of the update ring: the last early updates, whose
// gradients close at the end of the backward, are nowhere near them.
TEST(Programs, read_ahead_into_the_buffers_that_were_free_first) {
  const ModelSpec model = toy_model({.visits = 12}, Precision::kBf16);
  PlanOptions options{.device_bytes = kMiB, .host_bytes = kMiB, .chunk_elements = 128};
  options.placement.weights = {{HomeKind::kHost, 1}};
  options.placement.state = {{HomeKind::kNvme, 1}};
  options.update = UpdateMode::kSpeculative;
  const int64_t state = record_layout(Precision::kBf16, Group::kState, 128).bytes;
  for (const double share : {0.5, 0.6, 0.7, 0.8, 0.9}) {
    for (int64_t less = 0; less < 8; ++less) {
      options.speculated_share = share;
      options.host_bytes = kMiB - less * state;
      const Plan plan = make_plan(model, options);
      const UnitProgram unit = build_unit(model, plan, UnitKind::kTrainSpeculative);
      std::vector<int64_t> early;
      const Hop* first_ahead = nullptr;
      for (const int32_t hop : unit.program.lane(Lane::kRead)) {
        const Hop& read = unit.program.hops()[hop];
        if (read.when == When::kSpeculating) early.push_back(read.host_offset);
        if (first_ahead == nullptr && !early.empty() && read.when == When::kAlways) first_ahead = &read;
      }
      ASSERT_NE(first_ahead, nullptr);
      const auto reuses = [&](int64_t at) { return std::abs(at - first_ahead->host_offset) < state; };
      const auto oldest = std::find_if(early.rbegin(), early.rend(), reuses) - early.rbegin();
      EXPECT_GE(oldest + 1, std::min<int64_t>(plan.host_update.bytes / state, std::ssize(early)))
          << share << " of the updates, " << plan.host_update.bytes / state << " buffers";
    }
  }
}

// Of a unit's write lane: how many writes from the ring stand behind one from a home, of how many.
struct HomeWrites {
  int from_homes = 0, from_rings = 0, from_rings_behind = 0, behind_commit = 0;
};
HomeWrites home_writes(const UnitProgram& unit) {
  HomeWrites found;
  bool committed = false;
  for (const int32_t number : unit.program.lane(Lane::kWrite)) {
    const Hop& hop = unit.program.hops()[number];
    committed |= hop.verb == Verb::kCommit;
    if (hop.when == When::kCommitDirty) {
      ++found.from_homes;
      found.behind_commit += committed ? 1 : 0;
    } else if (hop.when == When::kPending) {
      ++found.from_rings;
      found.from_rings_behind += found.from_homes > 0 ? 1 : 0;
    }
  }
  return found;
}

// A write out of a ring's buffer is waited for by the next update that takes it, one from a home by the commit alone.
// Where no update waits for a buffer the drive has something to do from the first update on.
TEST(Programs, write_what_is_at_home_in_host_memory_behind_what_updates_wait_for) {
  const ModelSpec model = toy_model({.visits = 12}, Precision::kBf16);
  PlanOptions options{.device_bytes = kMiB, .chunk_elements = 128};
  options.placement.weights = {{HomeKind::kHost, 1}};
  options.placement.state = {{HomeKind::kHost, 0.5}, {HomeKind::kNvme, 0.5}};
  options.commit_interval = 1;
  for (const int64_t host_bytes : {kMiB, 64 * kMiB}) {
    options.host_bytes = host_bytes;
    const Plan plan = make_plan(model, options);
    for (const UnitKind kind : {UnitKind::kTrain, UnitKind::kEvaluate, UnitKind::kDrain}) {
      const HomeWrites writes = home_writes(build_unit(model, plan, kind));
      EXPECT_EQ(writes.from_rings + writes.from_homes, 2 * std::ssize(plan.chunks));
      EXPECT_GT(writes.from_homes, std::ssize(plan.chunks));  // all weights, and some state
      EXPECT_GT(writes.from_rings, 0);
      EXPECT_EQ(writes.behind_commit, 0);
      EXPECT_EQ(writes.from_rings_behind > 0, host_bytes > kMiB);
    }
  }
}

TEST(Programs, refuse_a_hop_that_reads_what_another_has_overwritten) {
  Program program;
  const Range first{Place::kHost, 0, 100, 1}, second{Place::kHost, 50, 60, 2};
  program.emit({}, {}, {&first, 1});
  program.emit({}, {}, {&second, 1});
  EXPECT_THROW(program.emit({}, {&first, 1}, {}), std::logic_error);
  EXPECT_NO_THROW(program.emit({}, {&second, 1}, {}));
}

TEST(Programs, wait_for_the_writer_and_for_every_reader_of_overwritten_bytes) {
  Program program;
  const Range range{Place::kDevice, 0, 100, 0}, part{Place::kDevice, 90, 110, 0}, far{Place::kDevice, 200, 300, 0};
  program.emit({}, {}, {&range, 1});
  program.emit({.verb = Verb::kSwapIn}, {&range, 1}, {});
  program.emit({.verb = Verb::kSwapOut}, {&part, 1}, {});
  program.emit({}, {}, {&far, 1});
  program.emit({.verb = Verb::kUpload}, {}, {&part, 1});
  program.finish();
  const auto waits = [&](int hop) {
    const auto p = program.predecessors(hop);
    return std::vector<int32_t>(p.begin(), p.end());
  };
  EXPECT_EQ(waits(1), (std::vector<int32_t>{0}));
  EXPECT_EQ(waits(2), (std::vector<int32_t>{0}));
  EXPECT_EQ(waits(3), (std::vector<int32_t>{}));
  EXPECT_EQ(waits(4), (std::vector<int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace sluice::testing
