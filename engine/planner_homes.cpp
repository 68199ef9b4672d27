// The planner's homes where their prices are known: what it may choose is shared out by a linear program, in whole
// chunks, partitions and tensors.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "engine/home_program.h"
#include "engine/planner.h"

namespace sluice {
namespace {

constexpr int kRounds = 6;         // rings depend on homes, and homes on what rings leave
constexpr double kNothing = 1e-9;  // of a share: solutions are floating-point numbers

// How many of these elements or bytes are still to be given to a home.
class Quota {
 public:
  Quota(double share, double all) : left_(share * all + kNothing * all) {}
  double left() const { return left_; }
  bool take(int64_t amount) {
    if (left_ < static_cast<double>(amount)) return false;
    left_ -= static_cast<double>(amount);
    return true;
  }

 private:
  double left_;
};

// Prices of an element or a byte, as floats: what was added up in another order is still the same.
using Key = std::pair<Group, std::vector<float>>;
Key key_of(Group group, const std::vector<LaneTimes>& prices, double amount) {
  Key key{group, {}};
  for (const LaneTimes& home : prices) {
    for (const double ms : home) key.second.push_back(static_cast<float>(ms / amount));
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

// Which of them may be at home on NVMe.
struct Planner::Passing {
  bool gradients = true, activations = true;
};

// What the planner may place, by what is alike, and the program that says how much of it goes where.
struct Planner::Shares {
  struct Alike {
    Group group = Group::kWeights;
    std::vector<int> items;  // chunks in the order of their updates; of activations the plan's tensors
    double amount = 0;       // elements; of activations bytes
  };
  std::vector<Alike> alike;
  HomeProgram program;  // a class each
};

const HomeShares& Planner::wish_for(Group group) const {
  const Placement& wish = options_.placement;
  const HomeShares* const wishes[] = {&wish.weights, &wish.state, &wish.gradient, &wish.activations};
  return *wishes[static_cast<size_t>(group)];
}

// A chunk's home for one group, as prices name it; a tensor's.
HomeKind Planner::home_kind(const Plan& plan, Group group, int item) const {
  if (group == Group::kActivations) return kind_of(plan.tensors[item].home);
  const ChunkHomes& homes = plan.chunks[item];
  if (group == Group::kState) return kind_of(homes.state);
  if (group == Group::kGradient) return kind_of(homes.gradient);
  if (plan.kept_offset[plan.geometry.chunks()[item].partition] < 0) return kind_of(homes.weights);
  return homes.weights == Home::kHost ? HomeKind::kHostAndDevice : HomeKind::kNvmeAndDevice;
}

Planner::Room Planner::bytes_at(const Plan& plan, Group group, int item, HomeKind home) const {
  const bool on_device =
      home == HomeKind::kDevice || home == HomeKind::kHostAndDevice || home == HomeKind::kNvmeAndDevice;
  const bool in_host = home == HomeKind::kHost || home == HomeKind::kHostAndDevice;
  int64_t device = 0, host = 0;
  if (group == Group::kActivations) {
    device = host = tensor_bytes(tensor_of(item));
  } else if (group == Group::kGradient) {
    device = host = gradient_home_bytes(plan, item);
  } else {
    host = record_bytes(plan, item, group);
    device = plan.weights_bytes(plan.geometry.chunks()[item].elements);
  }
  return {on_device ? device : 0, in_host ? host : 0};
}

// Calls `each` with group, item, the item's elements or bytes, and the partition or tensor that has its prices.
template <typename Each>
void Planner::each_item(const Plan& plan, Each each) const {
  for (const Group group : {Group::kWeights, Group::kState, Group::kGradient}) {
    if (group == Group::kGradient && options_.update == UpdateMode::kReplay) continue;
    for (const int c : plan.update_order) {
      if (plan.chunks[c].state == Home::kDevice) continue;  // weights and gradient lie beside it: nothing is chosen
      const Chunk& chunk = plan.geometry.chunks()[c];
      each(group, c, chunk.elements, chunk.partition);
    }
  }
  for (int i = 0; i < static_cast<int>(plan.tensors.size()); ++i) {
    each(Group::kActivations, i, tensor_bytes(tensor_of(i)), tensor_of(i));
  }
}

// What homes that may be chosen take now.
Planner::Room Planner::chosen_bytes(const Plan& plan) const {
  Room sum;
  each_item(plan, [&](Group group, int item, int64_t, int) {
    if (!free_to_choose(wish_for(group))) return;
    const Room bytes = bytes_at(plan, group, item, home_kind(plan, group, item));
    sum.device += bytes.device;
    sum.host += bytes.host;
  });
  return sum;
}

Planner::Shares Planner::shares_of(const Plan& plan, const HomePrices& prices, Passing passing) const {
  Shares shares;
  shares.program.rest_ms = prices.rest_ms;
  shares.program.machine = prices.machine;
  std::map<Key, size_t> found;
  std::array<std::vector<std::optional<size_t>>, kGroupCount> class_of;  // by group and what has the prices
  for (size_t group = 0; group < class_of.size(); ++group) class_of[group].resize(prices.groups[group].items.size());
  each_item(plan, [&](Group group, int item, int64_t amount, int priced) {
    const bool passes = group == Group::kGradient ? passing.gradients : passing.activations;
    const bool may_pass = group == Group::kWeights || group == Group::kState || passes;
    const std::span<const HomeKind> homes = homes_of(group).first(homes_of(group).size() - (may_pass ? 0 : 1));
    const std::vector<LaneTimes>& price = prices.of(group).items[priced];
    const double part = part_of(plan, group, amount, priced);
    if (!free_to_choose(wish_for(group))) {
      add(shares.program.rest_ms, price[place_of(homes_of(group), home_kind(plan, group, item))], part);
      return;
    }
    std::optional<size_t>& mine = class_of[static_cast<size_t>(group)][priced];
    if (!mine) {
      const auto [at, is_new] =
          found.emplace(key_of(group, price, static_cast<double>(amount) / part), shares.alike.size());
      if (is_new) {
        shares.alike.push_back({.group = group});
        shares.program.classes.emplace_back(homes.size());
      }
      mine = at->second;
    }
    shares.alike[*mine].items.push_back(item);
    shares.alike[*mine].amount += static_cast<double>(amount);
    for (size_t home = 0; home < homes.size(); ++home) {
      ClassAtHome& all = shares.program.classes[*mine][home];
      const Room bytes = bytes_at(plan, group, item, homes[home]);
      all.device_bytes += static_cast<double>(bytes.device);
      all.host_bytes += static_cast<double>(bytes.host);
      add(all.work_ms, price[home], part);
    }
  });
  return shares;
}

// How much of what has the price an item is: a chunk of its partition, a tensor as a whole.
double Planner::part_of(const Plan& plan, Group group, int64_t amount, int priced) const {
  if (group == Group::kActivations) return 1;
  return static_cast<double>(amount) / static_cast<double>(plan.geometry.partitions()[priced].elements);
}

// Each resource's time alone with the plan's homes.
GroupTimes Planner::times_of(const Plan& plan, const HomePrices& prices) const {
  LaneTimes work_ms = prices.rest_ms;
  each_item(plan, [&](Group group, int item, int64_t amount, int priced) {
    const std::vector<LaneTimes>& price = prices.of(group).items[priced];
    add(work_ms, price[place_of(homes_of(group), home_kind(plan, group, item))], part_of(plan, group, amount, priced));
  });
  return group_times(work_ms, prices.machine);
}

// In whole items: what is left of a share goes to the furthest home that there is a share for.
void Planner::share_out(Plan& plan, const Shares& shares, const HomeSolution& solution) const {
  for (size_t i = 0; i < shares.alike.size(); ++i) {
    const Shares::Alike& alike = shares.alike[i];
    const std::vector<double>& share = solution.shares[i];
    const auto elements = [&](int c) { return plan.geometry.chunks()[c].elements; };
    if (alike.group == Group::kWeights) {
      share_out_weights(plan, alike.items, alike.amount, share);
    } else if (alike.group == Group::kState) {
      Quota host(share[0], alike.amount);
      for (const int c : alike.items) plan.chunks[c].state = host.take(elements(c)) ? Home::kHost : Home::kNvme;
    } else if (alike.group == Group::kGradient) {
      Quota device(share[0], alike.amount), host(share[1], alike.amount);
      for (const int c : alike.items) {
        const bool in_host = share.size() < 3 || host.left() >= elements(c);
        plan.chunks[c].gradient = device.take(elements(c)) ? Home::kDevice : in_host ? Home::kHost : Home::kNvme;
        if (plan.chunks[c].gradient == Home::kHost) host.take(elements(c));
      }
    } else {
      share_out_tensors(plan, alike.items, alike.amount, share);
    }
  }
}

// A partition is kept as a whole; its chunks have homes of their own.
void Planner::share_out_weights(Plan& plan, const std::vector<int>& chunks, double amount,
                                const std::vector<double>& share) const {
  Quota kept(share[0] + share[1], amount), kept_in_host(share[0], amount), host(share[2], amount);
  int last = -1;
  for (const int c : chunks) {
    const Chunk& chunk = plan.geometry.chunks()[c];
    int64_t& offset = plan.kept_offset[chunk.partition];
    if (chunk.partition != last) {
      offset = kept.take(plan.geometry.partitions()[chunk.partition].elements) ? 0 : -1;
    }
    last = chunk.partition;
    plan.chunks[c].weights = (offset >= 0 ? kept_in_host : host).take(chunk.elements) ? Home::kHost : Home::kNvme;
  }
}

// To NVMe goes what rests longest between forward and backward.
void Planner::share_out_tensors(Plan& plan, const std::vector<int>& tensors, double amount,
                                const std::vector<double>& share) const {
  Quota device(share[0], amount), host(share.size() < 3 ? 1 : share[1], amount);
  for (const int i : tensors) {
    plan.tensors[i].home = device.take(tensor_bytes(tensor_of(i))) ? Home::kDevice : Home::kNvme;
  }
  for (auto i = tensors.rbegin(); i != tensors.rend(); ++i) {
    Home& home = plan.tensors[*i].home;
    if (home == Home::kNvme && host.take(tensor_bytes(tensor_of(*i)))) home = Home::kHost;
  }
}

Planner::Room Planner::ring_bytes(const Plan& plan) {
  return {plan.device_weights.bytes + plan.device_open.bytes + plan.device_boundary.bytes,
          plan.host_update.bytes + plan.host_staging.bytes + plan.host_gradients.bytes + plan.host_boundary.bytes};
}

// Sizes the rings that these homes ask for, of as many bytes, and says what they leave to homes that may be chosen.
Planner::Room Planner::room_for_homes(Plan& plan, Budgets budgets, Room rings) const {
  const Room beside = room_beside(plan, budgets), chosen = chosen_bytes(plan);
  const Needs least = needs(plan);
  const Room room = {beside.device + chosen.device, beside.host + chosen.host};
  Room depth = {rings.device - least.weights_group - least.open_group - least.boundary,
                rings.host - least.update_slot - least.staging_slot - least.gradient_slot - least.tensor_slot};
  depth = {std::clamp<int64_t>(depth.device, 0, std::max<int64_t>(0, room.device)),
           std::clamp<int64_t>(depth.host, 0, std::max<int64_t>(0, room.host))};
  Room left = depth;
  size_rings(plan, least, left);
  return {room.device - (depth.device - left.device), room.host - (depth.host - left.host)};
}

// Rings depend on homes, and homes on what rings leave: a few rounds settle it. Nothing where they do not.
std::optional<Planner::Room> Planner::share_memory(Plan& plan, Budgets budgets, Shares shares, Room rings) const {
  Room limit = room_for_homes(plan, budgets, rings);
  for (int round = 0; round < kRounds; ++round) {
    shares.program.device_bytes = static_cast<double>(limit.device);
    shares.program.host_bytes = static_cast<double>(limit.host);
    const std::optional<HomeSolution> solution = solve(shares.program);
    if (!solution) return std::nullopt;
    share_out(plan, shares, *solution);
    const Room room = room_for_homes(plan, budgets, rings), taken = chosen_bytes(plan);
    if (taken.device <= room.device && taken.host <= room.host) {
      return Room{room.device - taken.device, room.host - taken.host};
    }
    limit = {std::min(limit.device, room.device), std::min(limit.host, room.host)};
  }
  return std::nullopt;
}

// Homes and rings. The rings for gradients and activations on NVMe take memory as soon as one of them is there, which
// no linear program knows: it is asked with them and without. Where none of its answers is better than the fixed order,
// that decides.
Plan Planner::balance(const Plan& plan, Budgets budgets, Pricing pricing, Room room) const {
  const HomePrices& prices = *pricing.prices;
  Plan best = plan;
  size_rings(best, needs(best), room);
  Room rings = ring_bytes(best);
  fill(best, room);
  double least = burden_ms(times_of(best, prices));
  if (pricing.depth == RingDepth::kWanted) {
    Plan deep = plan;
    const Room beside = room_beside(plan, budgets), chosen = chosen_bytes(plan);
    Room all = {beside.device + chosen.device, beside.host + chosen.host};
    size_rings(deep, needs(deep), all);
    rings = ring_bytes(deep);
    least = std::numeric_limits<double>::infinity();  // no homes by the fixed order leave so much to rings
  }
  for (const Passing passing :
       {Passing{true, true}, Passing{true, false}, Passing{false, true}, Passing{false, false}}) {
    Plan tried = plan;
    std::optional<Room> left = share_memory(tried, budgets, shares_of(plan, prices, passing), rings);
    if (!left) continue;
    fill(tried, *left);
    const double burden = burden_ms(times_of(tried, prices));
    if (burden >= least) continue;
    least = burden;
    best = std::move(tried);
    best.homes_by = HomesBy::kSpeeds;
  }
  return best;
}

}  // namespace sluice
