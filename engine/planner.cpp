#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "engine/open_slots.h"
#include "engine/planner_impl.h"
#include "engine/predict.h"
#include "offload/executor.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

constexpr double kFewEarly = 0.25;  // of updates

// Gives item i of `count` its home by shares in canonical order.
HomeKind share_of(const HomeShares& shares, int64_t i, int64_t count) {
  double sum = 0;
  for (const HomeShare& share : shares) {
    sum += share.share;
    if (i < std::llround(sum * static_cast<double>(count))) return share.home;
  }
  return shares.back().home;
}

Home home_of(HomeKind kind) {
  switch (kind) {
    case HomeKind::kDevice:
      return Home::kDevice;
    case HomeKind::kHost:
    case HomeKind::kHostAndDevice:
      return Home::kHost;
    default:
      return Home::kNvme;
  }
}

bool kept(HomeKind kind) { return kind == HomeKind::kHostAndDevice || kind == HomeKind::kNvmeAndDevice; }

// The smallest value in (0, high] for which `works` holds, or nothing. `works` is monotone but for rounding.
template <typename Works>
std::optional<int64_t> smallest(int64_t high, Works works) {
  if (!works(high)) return std::nullopt;
  int64_t low = 0;  // does not work
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (works(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

int64_t Planner::Impl::ring_buffer_bytes(int64_t elements) const {
  return record_bytes(options_.format(), Group::kState, elements) +
         record_bytes(options_.format(), Group::kWeights, elements) + elements * bytes_of(options_.gradient_dtype);
}

int64_t Planner::Impl::chunk_elements(int64_t host_bytes) const {
  if (options_.chunk_elements > 0) return options_.chunk_elements;
  int64_t elements = kLargestDefaultChunk;
  while (elements > kSmallestDefaultChunk && kWantedUpdateBuffers * ring_buffer_bytes(elements) > host_bytes / 4)
    elements /= 2;
  return elements;
}

std::vector<int64_t> Planner::Impl::chunk_sizes(int64_t host_bytes) const {
  const int64_t elements = chunk_elements(host_bytes);
  if (options_.chunk_elements > 0) return {elements};
  std::vector<int64_t> sizes{elements};
  if (elements > kSmallestDefaultChunk) sizes.push_back(elements / 2);
  const int64_t all = model_.elements();
  for (int64_t more = 2 * elements; more <= kLargestDefaultChunk && more / 2 < all; more *= 2) sizes.push_back(more);
  std::erase_if(sizes, [&](int64_t each) { return all / each > host_bytes / kLeastTableBytesOfAChunk; });
  return sizes;
}

// Under replay none is kept.
int64_t Planner::Impl::gradient_home_bytes(const Plan& plan, int chunk) const {
  if (options_.update == UpdateMode::kReplay) return 0;
  return round_up(plan.gradient_bytes(plan.geometry.chunks()[chunk].elements), kDeviceAlignmentBytes);
}

int64_t Planner::Impl::kept_bytes(const Plan& plan, int partition) const {
  return plan.weights_bytes(plan.geometry.partitions()[partition].elements);
}

const Geometry& Planner::Impl::geometry(int64_t elements) const {
  auto made = known_->geometries.find(elements);
  if (made == known_->geometries.end()) {
    made = known_->geometries.emplace(elements, Geometry(model_.partitions, elements)).first;
  }
  return made->second;
}

// Everything at its lowest tier, but for what the user forces.
Plan Planner::Impl::draft(int64_t elements) const {
  Plan plan(geometry(elements));
  plan.options = options_;
  plan.options.chunk_elements = elements;
  plan.chunks.resize(plan.geometry.chunks().size());
  plan.kept_offset.assign(model_.partitions.size(), -1);
  plan.tensors.resize(model_.tensors.size() * options_.micro_batches);
  plan.graphs.assign(model_.visits.size(), -1);
  assign_open_slots(model_, uses_, plan);
  std::vector<bool> seen(model_.partitions.size(), false);
  for (const VisitSpec& visit : model_.visits) {
    for (int p : visit.partitions) {
      if (seen[p]) continue;
      seen[p] = true;
      const Partition& partition = plan.geometry.partitions()[p];
      for (const int c : partition.chunks()) plan.update_order.push_back(c);
    }
  }
  plan.update_times.assign(plan.chunks.size(), UpdateTime::kDeferred);
  force_homes(plan);
  return plan;
}

// Offset 0 marks "kept" until offsets are assigned.
void Planner::Impl::force_homes(Plan& plan) const {
  const Placement& wish = options_.placement;
  const auto count = static_cast<int64_t>(plan.chunks.size());
  std::vector<int> not_kept(model_.partitions.size(), 0);
  for (int64_t c = 0; c < count; ++c) {
    ChunkHomes& homes = plan.chunks[c];
    const int partition = plan.geometry.chunks()[c].partition;
    const HomeKind weights = free_to_choose(wish.weights) ? HomeKind::kNvme : share_of(wish.weights, c, count);
    homes.weights = home_of(weights);
    not_kept[partition] += kept(weights) ? 0 : 1;
    homes.state = free_to_choose(wish.state) ? Home::kNvme : home_of(share_of(wish.state, c, count));
    homes.gradient = free_to_choose(wish.gradient) ? Home::kHost : home_of(share_of(wish.gradient, c, count));
    if (options_.update == UpdateMode::kReplay) homes.gradient = Home::kNowhere;
  }
  for (size_t p = 0; p < not_kept.size(); ++p) plan.kept_offset[p] = not_kept[p] == 0 ? 0 : -1;
  for (int c = 0; c < static_cast<int>(count); ++c) {
    if (plan.chunks[c].updated_on_device()) update_on_device(plan, c);
  }
  const auto tensors = static_cast<int64_t>(plan.tensors.size());
  for (int64_t i = 0; i < tensors; ++i) {
    plan.tensors[i].home =
        free_to_choose(wish.activations) ? Home::kHost : home_of(share_of(wish.activations, i, tensors));
  }
}

void Planner::Impl::update_on_device(Plan& plan, int chunk) {
  ChunkHomes& homes = plan.chunks[chunk];
  homes.state = homes.weights = Home::kDevice;
  if (homes.gradient != Home::kNowhere) homes.gradient = Home::kDevice;
  plan.kept_offset[plan.geometry.chunks()[chunk].partition] = 0;
}

Planner::Impl::Needs Planner::Impl::needs(const Plan& plan) const {
  Needs needs;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const ChunkHomes& homes = plan.chunks[c];
    const int chunk = static_cast<int>(c);
    const int64_t weights = plan.record_bytes(chunk, Group::kWeights), state = plan.record_bytes(chunk, Group::kState);
    if (homes.weights == Home::kHost) needs.host_fixed += weights;
    if (homes.state == Home::kHost) needs.host_fixed += state;
    if (homes.gradient == Home::kHost) needs.host_fixed += gradient_home_bytes(plan, chunk);
    if (homes.gradient == Home::kDevice) needs.device_fixed += gradient_home_bytes(plan, chunk);
    if (homes.updated_on_device()) {
      needs.device_fixed += state;
      needs.staging.pass(state, weights);
    }
    if (homes.gradient != Home::kHost && !homes.updated_on_device()) {
      needs.gradient_buffer = std::max(needs.gradient_buffer, plan.gradient_block_bytes(chunk));
    }
    if (homes.weights == Home::kNvme) needs.staging.pass(0, weights);
    // One buffer always holds both records of a chunk: creation, digests and reads between steps use it.
    needs.update_buffer = std::max({needs.update_buffer, plan.update_layout(chunk).bytes, weights + state});
  }
  for (size_t p = 0; p < model_.partitions.size(); ++p) {
    const int partition = static_cast<int>(p);
    if (plan.kept_offset[p] >= 0) needs.device_fixed += kept_bytes(plan, partition);
  }
  for (const OpenSlot& slot : plan.open_slots) {
    (slot.home == Home::kHost ? needs.host_fixed : needs.device_fixed) += round_up(slot.bytes(), kDeviceAlignmentBytes);
  }
  for (size_t t = 0; t < model_.tensors.size(); ++t) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      const int tensor = static_cast<int>(t);
      const Home home = plan.tensor(tensor, m).home;
      if (home == Home::kHost) needs.host_fixed += tensor_bytes(tensor);
      if (home == Home::kDevice) needs.device_fixed += tensor_bytes(tensor);
      if (home == Home::kNvme) needs.tensor_buffer = std::max(needs.tensor_buffer, tensor_block_bytes(tensor));
    }
  }
  ring_needs(plan, needs);
  return needs;
}

// By prices first. Programs that bring records to the device and copy them to the store are longer, and so are those
// with early updates: their tables may not fit.
std::vector<Pricing> Planner::Impl::ways(const Pricing& pricing) const {
  std::vector<Pricing> ways;
  if (pricing.prices != nullptr) ways.push_back(pricing);
  ways.push_back({.state = pricing.state});
  if (pricing.state == StateToDevice::kWhereItFits && may_update_on_device()) {
    ways.push_back({.state = StateToDevice::kWhereForced});
  }
  if (options_.update == UpdateMode::kAuto) {
    ways.push_back({.state = StateToDevice::kWhereForced, .early = EarlyUpdates::kNone});
  } else if (options_.update == UpdateMode::kSpeculative && !options_.speculated_share) {
    ways.push_back({.state = StateToDevice::kWhereForced, .early = EarlyUpdates::kFew});
  }
  for (Pricing& way : ways) {
    way.host_state = pricing.host_state;
    way.table_bytes = pricing.table_bytes;
  }
  return ways;
}

template <typename Make>
auto Planner::Impl::first_plan(Budgets budgets, const Pricing& pricing, Make make) const {
  const std::vector<Pricing> all = ways(pricing);
  decltype(make(0, pricing)) made;
  for (const int64_t elements : chunk_sizes(budgets.host_bytes)) {
    for (const Pricing& way : all) {
      made = make(elements, way);
      if (made) return made;
    }
  }
  return made;
}

std::optional<Planner::Attempt> Planner::Impl::attempt(Budgets budgets, const Pricing& pricing) const {
  std::optional<Settled> settled = first_plan(
      budgets, pricing, [&](int64_t elements, const Pricing& way) { return settle(budgets, elements, way); });
  if (!settled) return std::nullopt;
  Attempt made{.plan = std::move(settled->plan)};
  if (options_.speeds) {
    const auto predicted_ms = [&](UnitKind kind, const UnitProgram& unit) {
      return predicted_step_ms(model_, made.plan, *options_.speeds, BuiltUnit{kind, unit});
    };
    made.step_ms = predicted_ms(unclipped_kind(made.plan), settled->steps.unclipped);
    if (defers_clipped_steps(made.plan)) made.clipped_ms = predicted_ms(UnitKind::kTrain, settled->steps.deferred);
  }
  return made;
}

std::optional<Plan> Planner::Impl::glance(Budgets budgets, const Pricing& pricing) const {
  const Budgets beside_tables{budgets.device_bytes, budgets.host_bytes - pricing.table_bytes};
  return first_plan(budgets, pricing,
                    [&](int64_t elements, const Pricing& way) { return place(beside_tables, elements, way); });
}

// What takes the least first.
bool Planner::Impl::fits(Budgets budgets) const {
  const std::vector<Pricing> all = ways({});
  const auto settles = [&](int64_t elements) {
    return std::any_of(all.rbegin(), all.rend(),
                       [&](const Pricing& way) { return settle(budgets, elements, way).has_value(); });
  };
  return std::ranges::any_of(chunk_sizes(budgets.host_bytes), settles);
}

// A guess neither refuses a plan that fits nor takes from it what it would miss, so there is none where memory is about
// as small as tables.
std::optional<Planner::Impl::Settled> Planner::Impl::settle(Budgets budgets, int64_t elements,
                                                            const Pricing& pricing) const {
  if (pricing.table_bytes > 0 && tables_are_small(pricing.table_bytes, budgets.host_bytes)) {
    if (auto settled = settle_from(pricing.table_bytes, budgets, elements, pricing)) return settled;
  }
  return settle_from(0, budgets, elements, pricing);
}

// Tables cost host memory and their size depends on the plan: a few rounds settle it. Each adds a 32nd, since the next
// plan's may be larger, until nothing fits beside that: none adds any from then on.
std::optional<Planner::Impl::Settled> Planner::Impl::settle_from(int64_t table_bytes, Budgets budgets, int64_t elements,
                                                                 const Pricing& pricing) const {
  const int64_t little = budgets.host_bytes / 1024;
  bool guessed = table_bytes > 0;
  bool adds = true;             // something for the next plan's being larger
  int64_t least = table_bytes;  // without that
  for (int round = 0; round < 6; ++round, guessed = false) {
    std::optional<Plan> plan = place({budgets.device_bytes, budgets.host_bytes - table_bytes}, elements, pricing);
    if (!plan && least == table_bytes) return std::nullopt;
    if (!plan) {
      adds = false;
      table_bytes = least;
      continue;
    }
    Tables needed = tables(*plan, budgets.host_bytes);
    const bool too_many = guessed && table_bytes > needed.bytes + needed.bytes / 32 + little;
    if (needed.bytes <= table_bytes && !too_many) {
      plan->table_bytes = table_bytes;
      describe(*plan);
      count_moves(*plan, needed.steps.unclipped);
      plan->options.device_bytes = budgets.device_bytes;
      plan->options.host_bytes = budgets.host_bytes;
      return Settled{std::move(*plan), std::move(needed.steps)};
    }
    least = needed.bytes;
    table_bytes = needed.bytes + (adds ? needed.bytes / 32 : 0);
  }
  return std::nullopt;
}

// What is left beside homes and one buffer of each ring; below zero where they do not fit.
Planner::Impl::Room Planner::Impl::room_beside(const Needs& least, Budgets budgets) const {
  const int64_t arena_rounding = 4096;  // an arena is a whole number of pages
  const int64_t device_arena = (budgets.device_bytes - options_.own_device_bytes) / arena_rounding * arena_rounding;
  return {device_arena - options_.workspace_bytes - least.device_fixed - least.weights_group - least.open_group -
              least.boundary - kDeviceAlignmentBytes,
          budgets.host_bytes / arena_rounding * arena_rounding - least.host_fixed - least.update_buffer -
              least.staging.buffer - least.gradient_buffer - least.tensor_buffer};
}

std::optional<Plan> Planner::Impl::place(Budgets budgets, int64_t elements, const Pricing& pricing) const {
  if (budgets.device_bytes <= 0 || budgets.host_bytes <= 0) return std::nullopt;
  Plan plan = draft(elements);
  plan.host_state = pricing.host_state;
  if (pricing.early == EarlyUpdates::kNone) plan.options.speculated_share = 0;
  if (pricing.early == EarlyUpdates::kFew) plan.options.speculated_share = kFewEarly;
  const Needs least = spill(plan, budgets);
  Room room = room_beside(least, budgets);
  if (room.device < 0 || room.host < 0) return std::nullopt;
  if (pricing.prices != nullptr) {
    plan = balance(plan, least, budgets, pricing);
  } else {
    size_rings(plan, least, room);
    fill(plan, room, pricing.state);
  }
  assign_offsets(plan, budgets.host_bytes);
  return plan;
}

Planner::Impl::Tables Planner::Impl::tables(const Plan& plan, int64_t limit) const {
  // What does not grow with the model: queues, threads, the topology; then names.
  int64_t bytes = 48 * kKiB + static_cast<int64_t>(model_.visits.size() * 768);
  bytes += RecordStore::predicted_table_bytes(table_needs(plan)) + options_.progress_bytes;  // the engine has it, too
  size_t longest = 0;
  Steps steps;
  for (UnitKind kind : unit_kinds(plan)) {
    if (bytes > limit) break;
    UnitProgram unit = build_unit({model_, uses_, plan}, kind);
    bytes += (plan.other_slots.empty() ? 1 : 2) * unit.memory_bytes();
    longest = std::max(longest, unit.program.hops().size());
    if (kind == unclipped_kind(plan)) {
      steps.unclipped = std::move(unit);
    } else if (kind == UnitKind::kTrain && defers_clipped_steps(plan)) {
      steps.deferred = std::move(unit);
    }
  }
  bytes += static_cast<int64_t>(longest) * Executor::bytes_per_hop();
  bytes += static_cast<int64_t>(plan.chunks.size() * (sizeof(ChunkHomes) + sizeof(Chunk) + sizeof(int) + 4));
  bytes += static_cast<int64_t>(plan.scratch_bytes.size() * sizeof(int64_t));
  bytes += static_cast<int64_t>(plan.tensors.size() * sizeof(TensorHome) + plan.tensor_open_slots.size() * sizeof(int));
  bytes += static_cast<int64_t>(plan.open_slots.size() * sizeof(OpenSlot));
  bytes += static_cast<int64_t>(plan.other_slots.size() * sizeof(HostSlot));
  bytes += static_cast<int64_t>(plan.geometry.parameters().size() * (sizeof(Parameter) + 64));
  return {bytes, std::move(steps)};
}

Plan Planner::Impl::roomy() const {
  const int64_t enough = everything_bytes();
  std::optional<Plan> plan = place({enough, enough}, chunk_elements(enough), {});
  SLUICE_CHECK(plan.has_value(), "all of it is enough");
  return std::move(*plan);
}

int64_t Planner::Impl::everything_bytes() const {
  int64_t bytes = options_.workspace_bytes + options_.own_device_bytes;
  for (const PartitionSpec& partition : model_.partitions) {
    for (const ParameterSpec& parameter : partition.parameters) {
      bytes += 64 * round_up(parameter.elements(), kParameterAlignmentElements);
    }
  }
  for (const TensorSpec& tensor : model_.tensors) bytes += 16 * round_up(tensor.bytes(), 256) * options_.micro_batches;
  return 2 * bytes + 256 * kMiB;
}

std::optional<int64_t> Planner::Impl::smallest_device(int64_t host_bytes) const {
  return smallest(everything_bytes(), [&](int64_t bytes) { return fits({bytes, host_bytes}); });
}

std::optional<int64_t> Planner::Impl::smallest_host(int64_t device_bytes) const {
  return smallest(everything_bytes(), [&](int64_t bytes) { return fits({device_bytes, bytes}); });
}

std::shared_ptr<Planner::Known> Planner::know(const ModelSpec& model) { return std::make_shared<Known>(model); }

Planner::Planner(const ModelSpec& model, const PlanOptions& options, std::shared_ptr<Known> known)
    : impl_(std::make_shared<const Impl>(model, options, std::move(known))) {}

std::optional<Planner::Attempt> Planner::attempt(Budgets budgets, const Pricing& pricing) const {
  return impl_->attempt(budgets, pricing);
}
std::optional<Plan> Planner::glance(Budgets budgets, const Pricing& pricing) const {
  return impl_->glance(budgets, pricing);
}
std::optional<int64_t> Planner::smallest_device(int64_t host_bytes) const { return impl_->smallest_device(host_bytes); }
std::optional<int64_t> Planner::smallest_host(int64_t device_bytes) const { return impl_->smallest_host(device_bytes); }
int64_t Planner::chunk_elements(int64_t host_bytes) const { return impl_->chunk_elements(host_bytes); }
std::vector<int64_t> Planner::chunk_sizes(int64_t host_bytes) const { return impl_->chunk_sizes(host_bytes); }
int64_t Planner::ring_buffer_bytes(int64_t elements) const { return impl_->ring_buffer_bytes(elements); }
bool Planner::may_update_on_device() const { return impl_->may_update_on_device(); }
int64_t Planner::everything_bytes() const { return impl_->everything_bytes(); }
Plan Planner::roomy() const { return impl_->roomy(); }

}  // namespace sluice
