// The planner's homes where their prices are known: what it may choose is shared out by a linear program, in whole
// chunks, partitions and tensors.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "engine/home_program.h"
#include "engine/planner_impl.h"

namespace sluice {
namespace {

constexpr int kRounds = 6;         // rings depend on homes, and homes on what rings leave
constexpr double kNothing = 1e-9;  // of a share: solutions are floating-point numbers
constexpr Group kChunkGroups[] = {Group::kState, Group::kWeights, Group::kGradient};
constexpr size_t kMostPrices = 64;  // of an item at all of its homes, and of what is beside it

// How many of these elements or bytes are still to be given to a home.
class Quota {
 public:
  Quota(double share, double all) : left_(share * all + kNothing * all) {}
  bool holds(int64_t amount) const { return left_ >= static_cast<double>(amount); }
  bool take(int64_t amount) {
    if (!holds(amount)) return false;
    left_ -= static_cast<double>(amount);
    return true;
  }

 private:
  double left_;
};

// Prices of an element or a byte, as floats: what was added up in another order is still the same.
using Key = std::pair<Group, std::vector<float>>;
enum class ChunkGroups : uint8_t { kApart, kTogether };  // together: as far as homes on the device take all of them
struct Priced {
  Group group = Group::kState;
  int item = -1;      // of the group's prices
  double amount = 0;  // that they are of
};
Key key_of(const HomePrices& prices, const Priced& priced, ChunkGroups groups) {
  const auto& [group, item, amount] = priced;
  Key key{group, {}};
  key.second.reserve(kMostPrices);
  const auto append = [&](Group each) {
    for (const LaneTimes& home : prices.of(each).items[item]) {
      for (const double ms : home) key.second.push_back(static_cast<float>(ms / amount));
    }
  };
  if (group == Group::kActivations || groups == ChunkGroups::kApart) {
    append(group);
  } else {
    for (const Group each : kChunkGroups) append(each);
  }
  return key;
}

void add(LaneTimes& sum, const LaneTimes& work_ms, double times) {
  for (size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += times * work_ms[lane];
}

size_t place_of(std::span<const HomeKind> homes, HomeKind home) {
  return static_cast<size_t>(std::find(homes.begin(), homes.end(), home) - homes.begin());
}

HomeKind kind_of(Home home) {
  return home == Home::kDevice ? HomeKind::kDevice : home == Home::kHost ? HomeKind::kHost : HomeKind::kNvme;
}

}  // namespace

// What may pass through rings of the host that nothing else needs: gradients and activations at home on NVMe, records
// at home on the device. Gradients at home on the device pass, too, by a few buffers that are not counted here.
struct Planner::Impl::Passing {
  bool gradients = true, activations = true, records = true;
};

// What the planner may place, by what is alike, and the program that says how much of it goes where.
struct Planner::Impl::Shares {
  struct Alike {
    Group group = Group::kWeights;
    std::span<const HomeKind> homes;  // to choose from
    std::vector<int> items;           // chunks in the order of their updates; of activations the plan's tensors
    double amount = 0;                // elements; of activations bytes
  };
  std::vector<Alike> alike;
  HomeProgram program;  // a class each
};

struct Planner::Impl::Shared {
  Plan plan;
  Room left;
};

// How much of what is alike each home gets.
struct Planner::Impl::Quotas {
  const Shares::Alike& alike;
  const std::vector<double>& shares;
  bool offers(HomeKind home) const { return place_of(alike.homes, home) < alike.homes.size(); }
  double share(HomeKind home) const { return offers(home) ? shares[place_of(alike.homes, home)] : 0; }
  Quota of(HomeKind home) const { return {share(home), alike.amount}; }
};

const HomeShares& Planner::Impl::wish_for(Group group) const {
  const Placement& wish = options_.placement;
  const HomeShares* const wishes[] = {&wish.weights, &wish.state, &wish.gradient, &wish.activations};
  return *wishes[static_cast<size_t>(group)];
}

// A chunk's home for one group, as prices name it; a tensor's.
HomeKind Planner::Impl::home_kind(const Plan& plan, Group group, int item) const {
  if (group == Group::kActivations) return kind_of(plan.tensors[item].home);
  const ChunkHomes& homes = plan.chunks[item];
  if (group == Group::kState) return kind_of(homes.state);
  if (group == Group::kGradient) return kind_of(homes.gradient);
  if (plan.kept_offset[plan.geometry.chunks()[item].partition] < 0) return kind_of(homes.weights);
  return homes.weights == Home::kHost ? HomeKind::kHostAndDevice : HomeKind::kNvmeAndDevice;
}

// What an item takes where its home is on the device, and where it is in host memory.
Planner::Impl::Room Planner::Impl::home_bytes(const Plan& plan, Group group, int item) const {
  if (group == Group::kActivations) return {tensor_bytes(tensor_of(item)), tensor_bytes(tensor_of(item))};
  const int64_t gradient = gradient_home_bytes(plan, item);
  if (group == Group::kGradient) return {gradient, gradient};
  const int64_t record = plan.record_bytes(item, group);
  const int64_t weights = plan.weights_bytes(plan.geometry.chunks()[item].elements);
  return {group == Group::kState ? weights + record + gradient : weights, record};
}

// ... of that, with this home.
Planner::Impl::Room Planner::Impl::taken_at(HomeKind home, Room bytes) {
  const bool on_device =
      home == HomeKind::kDevice || home == HomeKind::kHostAndDevice || home == HomeKind::kNvmeAndDevice;
  const bool in_host = home == HomeKind::kHost || home == HomeKind::kHostAndDevice;
  return {on_device ? bytes.device : 0, in_host ? bytes.host : 0};
}

// Calls `each` with group, item, the item's elements or bytes, and the partition or tensor that has its prices. Weights
// and gradient beside state on the device are part of its item.
template <typename Each>
void Planner::Impl::each_item(const Plan& plan, Each each) const {
  for (const Group group : kChunkGroups) {
    if (group == Group::kGradient && options_.update == UpdateMode::kReplay) continue;
    for (const int c : plan.update_order) {
      if (group != Group::kState && plan.chunks[c].updated_on_device()) continue;
      const Chunk& chunk = plan.geometry.chunks()[c];
      each(group, c, chunk.elements, chunk.partition);
    }
  }
  for (int i = 0; i < static_cast<int>(plan.tensors.size()); ++i) {
    each(Group::kActivations, i, tensor_bytes(tensor_of(i)), tensor_of(i));
  }
}

// What homes that may be chosen take now.
Planner::Impl::Room Planner::Impl::chosen_bytes(const Plan& plan) const {
  Room sum;
  each_item(plan, [&](Group group, int item, int64_t, int) {
    if (!free_to_choose(wish_for(group))) return;
    const Room bytes = taken_at(home_kind(plan, group, item), home_bytes(plan, group, item));
    sum.device += bytes.device;
    sum.host += bytes.host;
  });
  return sum;
}

// The homes that it may have, of those that prices name.
std::span<const HomeKind> Planner::Impl::choice_of(const Plan& plan, Group group, int item, Passing passing) const {
  const std::span<const HomeKind> homes = homes_of(group);
  if (group == Group::kState) return passing.records ? homes : homes.subspan(1);
  if (group == Group::kWeights) {  // kept already: beside state that is forced to be on the device
    return plan.kept_offset[plan.geometry.chunks()[item].partition] < 0 ? homes : homes.first(2);
  }
  const bool passes = group == Group::kGradient ? passing.gradients : passing.activations;
  return passes ? homes : homes.first(2);
}

Planner::Impl::Shares Planner::Impl::shares_of(const Plan& plan, const HomePrices& prices, Passing passing) const {
  Shares shares;
  shares.program.rest_ms = prices.rest_ms;
  shares.program.machine = prices.machine;
  std::map<Key, size_t> found;
  std::array<std::vector<std::optional<size_t>>, kGroupCount> class_of;  // by group and what has the prices
  for (size_t group = 0; group < class_of.size(); ++group) class_of[group].resize(prices.groups[group].items.size());
  each_item(plan, [&](Group group, int item, int64_t amount, int priced) {
    const std::vector<LaneTimes>& price = prices.of(group).items[priced];
    const auto price_at = [&](HomeKind home) { return price[place_of(homes_of(group), home)]; };
    const double part = part_of(plan, group, amount, priced);
    if (!free_to_choose(wish_for(group))) {
      add(shares.program.rest_ms, price_at(home_kind(plan, group, item)), part);
      return;
    }
    const std::span<const HomeKind> homes = choice_of(plan, group, item, passing);
    std::optional<size_t>& mine = class_of[static_cast<size_t>(group)][priced];
    if (!mine) {
      Key key = key_of(prices, {group, priced, static_cast<double>(amount) / part},
                       passing.records ? ChunkGroups::kTogether : ChunkGroups::kApart);
      key.second.push_back(static_cast<float>(homes.size()));
      const auto [at, is_new] = found.try_emplace(std::move(key), shares.alike.size());
      if (is_new) {
        shares.alike.push_back({.group = group, .homes = homes});
        shares.program.classes.push_back({.homes = HomeClass::Homes(homes.size())});
        const bool beside_state = group == Group::kWeights || group == Group::kGradient;
        if (beside_state && passing.records) {
          shares.program.classes.back().beside = class_of[static_cast<size_t>(Group::kState)][priced];
        }
      }
      mine = at->second;
    }
    shares.alike[*mine].items.push_back(item);
    shares.alike[*mine].amount += static_cast<double>(amount);
    const Room most = home_bytes(plan, group, item);
    for (size_t home = 0; home < homes.size(); ++home) {
      ClassAtHome& all = shares.program.classes[*mine].homes[home];
      const Room bytes = taken_at(homes[home], most);
      all.device_bytes += static_cast<double>(bytes.device);
      all.host_bytes += static_cast<double>(bytes.host);
      add(all.work_ms, price_at(homes[home]), part);
    }
  });
  return shares;
}

// How much of what has the price an item is: a chunk of its partition, a tensor as a whole.
double Planner::Impl::part_of(const Plan& plan, Group group, int64_t amount, int priced) const {
  if (group == Group::kActivations) return 1;
  return static_cast<double>(amount) / static_cast<double>(plan.geometry.partitions()[priced].elements);
}

// Each resource's time alone with the plan's homes.
GroupTimes Planner::Impl::times_of(const Plan& plan, const HomePrices& prices) const {
  LaneTimes work_ms = prices.rest_ms;
  each_item(plan, [&](Group group, int item, int64_t amount, int priced) {
    const std::vector<LaneTimes>& price = prices.of(group).items[priced];
    add(work_ms, price[place_of(homes_of(group), home_kind(plan, group, item))], part_of(plan, group, amount, priced));
  });
  return group_times(work_ms, prices.machine);
}

// In whole items: what is left of a share goes to the furthest home that there is a choice of. State comes first: what
// lies beside it on the device has no other home.
void Planner::Impl::share_out(Plan& plan, const Shares& shares, const HomeSolution& solution) const {
  for (size_t i = 0; i < shares.alike.size(); ++i) {
    const Shares::Alike& alike = shares.alike[i];
    const Quotas quotas{alike, solution.shares[i]};
    switch (alike.group) {
      case Group::kState:
        share_out_state(plan, quotas);
        break;
      case Group::kWeights:
        share_out_weights(plan, quotas);
        break;
      case Group::kGradient:
        share_out_gradients(plan, quotas);
        break;
      case Group::kActivations:
        share_out_tensors(plan, quotas);
        break;
    }
  }
}

// A partition is updated on the device as a whole.
void Planner::Impl::share_out_state(Plan& plan, const Quotas& quotas) {
  Quota device = quotas.of(HomeKind::kDevice), host = quotas.of(HomeKind::kHost);
  int last = -1;
  for (const int c : quotas.alike.items) {
    const Chunk& chunk = plan.geometry.chunks()[c];
    const bool first = chunk.partition != last;
    last = chunk.partition;
    if (first && device.take(plan.geometry.partitions()[chunk.partition].elements)) {
      plan.kept_offset[chunk.partition] = 0;
    }
    plan.chunks[c].state = Home::kNvme;
    if (quotas.offers(HomeKind::kDevice) && plan.kept_offset[chunk.partition] >= 0) update_on_device(plan, c);
  }
  for (const int c : for_state_in_host(plan, quotas.alike.items)) {
    ChunkHomes& homes = plan.chunks[c];
    if (!homes.updated_on_device() && host.take(plan.geometry.chunks()[c].elements)) homes.state = Home::kHost;
  }
}

// A partition is kept as a whole; its chunks have homes of their own.
void Planner::Impl::share_out_weights(Plan& plan, const Quotas& quotas) {
  using enum HomeKind;
  Quota kept(quotas.share(kHostAndDevice) + quotas.share(kNvmeAndDevice), quotas.alike.amount);
  Quota kept_in_host = quotas.of(kHostAndDevice), host = quotas.of(kHost);
  int last = -1;
  for (const int c : quotas.alike.items) {
    if (plan.chunks[c].updated_on_device()) continue;
    const Chunk& chunk = plan.geometry.chunks()[c];
    int64_t& offset = plan.kept_offset[chunk.partition];
    if (chunk.partition != last && quotas.offers(kHost)) {
      offset = kept.take(plan.geometry.partitions()[chunk.partition].elements) ? 0 : -1;
    }
    last = chunk.partition;
    plan.chunks[c].weights = (offset >= 0 ? kept_in_host : host).take(chunk.elements) ? Home::kHost : Home::kNvme;
  }
}

void Planner::Impl::share_out_gradients(Plan& plan, const Quotas& quotas) {
  Quota device = quotas.of(HomeKind::kDevice), host = quotas.of(HomeKind::kHost);
  for (const int c : quotas.alike.items) {
    if (plan.chunks[c].updated_on_device()) continue;
    const int64_t elements = plan.geometry.chunks()[c].elements;
    const bool in_host = host.holds(elements) || !quotas.offers(HomeKind::kNvme);
    plan.chunks[c].gradient = device.take(elements) ? Home::kDevice : in_host ? Home::kHost : Home::kNvme;
    if (plan.chunks[c].gradient == Home::kHost) host.take(elements);
  }
}

// To NVMe goes what rests longest between forward and backward.
void Planner::Impl::share_out_tensors(Plan& plan, const Quotas& quotas) const {
  Quota device = quotas.of(HomeKind::kDevice), host = quotas.of(HomeKind::kHost);
  const std::vector<int>& tensors = quotas.alike.items;
  for (const int i : tensors) {
    plan.tensors[i].home = device.take(tensor_bytes(tensor_of(i))) ? Home::kDevice : Home::kNvme;
  }
  for (auto i = tensors.rbegin(); i != tensors.rend(); ++i) {
    Home& home = plan.tensors[*i].home;
    if (home != Home::kNvme) continue;
    if (host.take(tensor_bytes(tensor_of(*i))) || !quotas.offers(HomeKind::kNvme)) home = Home::kHost;
  }
}

Planner::Impl::Room Planner::Impl::ring_bytes(const Plan& plan) {
  return {plan.device_weights.bytes + plan.device_open.bytes + plan.device_boundary.bytes,
          plan.host_update.bytes + plan.host_staging.bytes + plan.host_gradients.bytes + plan.host_boundary.bytes};
}

// Sizes the rings that these homes ask for, of as many bytes, and says what they leave to homes that may be chosen,
// which take `chosen` now.
Planner::Impl::Room Planner::Impl::room_for_homes(Plan& plan, Room chosen, Budgets budgets, Room rings) const {
  const Needs least = needs(plan);
  const Room beside = room_beside(least, budgets);
  const Room room = {beside.device + chosen.device, beside.host + chosen.host};
  Room depth = {rings.device - least.weights_group - least.open_group - least.boundary,
                rings.host - least.update_buffer - least.staging.buffer - least.gradient_buffer - least.tensor_buffer};
  depth = {std::clamp<int64_t>(depth.device, 0, std::max<int64_t>(0, room.device)),
           std::clamp<int64_t>(depth.host, 0, std::max<int64_t>(0, room.host))};
  Room left = depth;
  size_rings(plan, least, left);
  Room homes = {room.device - (depth.device - left.device), room.host - (depth.host - left.host)};
  hold_passing(plan, least, homes);
  return homes;
}

// Rings depend on homes, and homes on what rings leave: a few rounds settle it. Nothing where they do not.
std::optional<Planner::Impl::Shared> Planner::Impl::share_memory(const Plan& draft, Budgets budgets, Shares shares,
                                                                 Room rings) const {
  Plan plan = draft;
  Room limit = room_for_homes(plan, chosen_bytes(plan), budgets, rings);
  for (int round = 0; round < kRounds; ++round) {
    shares.program.device_bytes = static_cast<double>(limit.device);
    shares.program.host_bytes = static_cast<double>(limit.host);
    const std::optional<HomeSolution>& solution = known_->homes.solve(shares.program);
    if (!solution) return std::nullopt;
    const Ring update = plan.host_update;
    plan = draft;
    plan.host_update = update;
    share_out(plan, shares, *solution);
    const Room taken = chosen_bytes(plan), room = room_for_homes(plan, taken, budgets, rings);
    const Room left = {room.device - taken.device, room.host - taken.host};
    if (left.device >= 0 && left.host >= 0) return Shared{std::move(plan), left};
    limit = {std::min(limit.device + std::min<int64_t>(0, left.device), room.device),
             std::min(limit.host + std::min<int64_t>(0, left.host), room.host)};
  }
  return std::nullopt;
}

// What passes through rings of the host with these homes, where there is a choice.
Planner::Impl::Passing Planner::Impl::passing(const Plan& plan) const {
  Passing found{.gradients = false, .activations = false};
  each_item(plan, [&](Group group, int item, int64_t, int) {
    const HomeKind home = home_kind(plan, group, item);
    if (group == Group::kGradient) found.gradients |= home == HomeKind::kNvme;
    if (group == Group::kActivations) found.activations |= home == HomeKind::kNvme;
  });
  return found;
}

// Homes and rings. What passes through rings takes memory for them as soon as there is any, which no linear program
// knows: it is asked with them, and without each that its answer has. Where none of its answers is better than the
// fixed order, that decides.
Plan Planner::Impl::balance(const Plan& plan, const Needs& least, Budgets budgets, const Pricing& pricing) const {
  const HomePrices& prices = *pricing.prices;
  const Room beside = room_beside(least, budgets);
  Plan best = plan;
  Room room = beside;
  size_rings(best, least, room);
  Room rings = ring_bytes(best);
  fill(best, room, pricing.state);
  double least_ms = burden_ms(times_of(best, prices));
  if (pricing.depth == RingDepth::kWanted) {
    Plan deep = plan;
    const Room chosen = chosen_bytes(plan);
    Room all = {beside.device + chosen.device, beside.host + chosen.host};
    size_rings(deep, least, all);
    rings = ring_bytes(deep);
    least_ms = std::numeric_limits<double>::infinity();  // no homes by the fixed order leave so much to rings
  }
  const bool records = pricing.state == StateToDevice::kWhereItFits && may_update_on_device();
  // Says what passes with the homes found; where none are, what might.
  const auto consider = [&](const Passing& may) {
    std::optional<Shared> tried = share_memory(plan, budgets, shares_of(plan, prices, may), rings);
    if (!tried) return may;
    const Passing found = passing(tried->plan);
    fill(tried->plan, tried->left, pricing.state);
    const double burden = burden_ms(times_of(tried->plan, prices));
    if (burden >= least_ms) return found;
    least_ms = burden;
    best = std::move(tried->plan);
    best.homes_by = HomesBy::kSpeeds;
    return found;
  };
  const auto with_activations_or_not = [&](Passing may) {
    const Passing found = consider(may);
    may.activations = false;
    if (found.activations) consider(may);
    return found;
  };
  const Passing all{.gradients = true, .activations = true, .records = records};
  if (with_activations_or_not(all).gradients) {
    with_activations_or_not({.gradients = false, .activations = true, .records = records});
  }
  return best;
}

}  // namespace sluice
