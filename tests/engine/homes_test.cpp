// Homes that are chosen by speeds: against every assignment there is on small models, against the fixed order, and what
// no choice may touch.
#include <algorithm>
#include <map>

#include "core/errors.h"
#include "engine/passing_tensors.h"
#include "engine/plan_search.h"
#include "tests/engine/homes_fixture.h"

namespace sluice::testing {
namespace {

constexpr Group kGroups[] = {Group::kWeights, Group::kState, Group::kGradient, Group::kActivations};

HomeShares& shares_of(Placement& placement, Group group) {
  HomeShares* const shares[] = {&placement.weights, &placement.state, &placement.gradient, &placement.activations};
  return *shares[static_cast<size_t>(group)];
}

// --- prices ----------------------------------------------------------------------------------------------------------

HomeKind kind_of(Home home) {
  return home == Home::kDevice ? HomeKind::kDevice : home == Home::kHost ? HomeKind::kHost : HomeKind::kNvme;
}

HomeKind home_of_chunk(const Plan& plan, Group group, int c) {
  const ChunkHomes& homes = plan.chunks[c];
  if (group != Group::kWeights) return kind_of(group == Group::kState ? homes.state : homes.gradient);
  if (plan.kept_offset[plan.geometry.chunks()[c].partition] < 0) return kind_of(homes.weights);
  return homes.weights == Home::kHost ? HomeKind::kHostAndDevice : HomeKind::kNvmeAndDevice;
}

size_t place_of(Group group, HomeKind home) {
  const auto homes = homes_of(group);
  return static_cast<size_t>(std::find(homes.begin(), homes.end(), home) - homes.begin());
}

void add(LaneTimes& sum, const LaneTimes& work_ms, double times) {
  for (size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += times * work_ms[lane];
}

// Where the ring holds less than a visit passes, tensors take ways to the drive and back that no price knows.
TEST_F(Homes, prices_add_up_to_the_work_of_whole_plans) {
  int on_device = 0, all = 0, passing = 0, crowded = 0;
  for (const int micro_batches : {1, 3}) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      PlanOptions wish = options(seed);
      wish.micro_batches = micro_batches;
      wish.commit_interval = seed % 2 == 0 ? 1 : 4;
      const HomePrices prices = price_homes(model_, wish, wish.commit_interval);
      if (seed % 4 == 3) wish.placement.activations = {{HomeKind::kNvme, 1}};
      make_scarce(wish, seed);
      wish.device_bytes += static_cast<int64_t>(seed % 5) * 64 * kKiB;
      const std::optional<Plan> plan = planned(wish);
      ASSERT_TRUE(plan);
      LaneTimes sum = prices.rest_ms;
      all += static_cast<int>(plan->chunks.size());
      for (int c = 0; c < static_cast<int>(plan->chunks.size()); ++c) {
        const bool together = plan->chunks[c].updated_on_device();
        on_device += together ? 1 : 0;
        for (const Group group : {Group::kState, Group::kWeights, Group::kGradient}) {
          if (together && group != Group::kState) continue;
          const auto& price = prices.of(group).items[plan->geometry.chunks()[c].partition];
          add(sum, price[place_of(group, home_of_chunk(*plan, group, c))], 0.5);  // two chunks a partition
        }
      }
      for (size_t i = 0; i < plan->tensors.size(); ++i) {
        const Home home = plan->tensors[i].home;
        add(sum,
            prices.of(Group::kActivations)
                .items[i / micro_batches][home == Home::kDevice ? 0
                                          : home == Home::kHost ? 1
                                                                : 2],
            1);
      }
      const LaneTimes work_ms = work_of(*plan);
      const int64_t passes = passing_bytes(model_, *plan);
      const bool fits = plan->host_boundary.bytes >= passes;
      passing += fits && passes > 0 ? 1 : 0;
      crowded += fits ? 0 : 1;
      for (int lane = 0; lane < kLaneCount; ++lane) {
        const double slack_ms = 1e-9 + 1e-9 * work_ms[lane];
        EXPECT_LE(sum[lane], work_ms[lane] + slack_ms) << "seed " << seed << " lane " << lane;
        if (fits) {
          EXPECT_GE(sum[lane], work_ms[lane] - slack_ms) << "seed " << seed << " lane " << lane;
        }
      }
    }
  }
  EXPECT_GT(passing, 4);
  EXPECT_GT(crowded, 4);
  EXPECT_GT(on_device, all / 10);
  EXPECT_LT(on_device, all * 9 / 10);
}

// --- every assignment ------------------------------------------------------------------------------------------------

// One group's bytes in whole items: each item takes one home. Items that are alike are interchangeable.
struct Item {
  std::vector<LaneTimes> work_ms;  // by home
  std::vector<int64_t> device, host;
  int alike = 0;
  std::vector<int> updated_there;  // by home: chunks whose state and gradient are at home on the device with it
  int number = -1;                 // of a chunk: it has no home of its own where so many are on the device
};

class Enumeration {
 public:
  Enumeration(const ModelSpec& model, const Plan& plan, const HomePrices& prices, Group forced)
      : forms_(group_forms(prices.machine)), rest_ms_(prices.rest_ms) {
    constexpr int64_t kChunkBytes = 4096, kStateBytes = 5 * kChunkBytes;
    for (int p = 0; p < static_cast<int>(model.partitions.size()); ++p) {
      // Both chunks of a partition at once: it is kept or not, none, one or both of them are updated on the device, and
      // of the others' weights none, one or both are in host memory.
      Item weights{.alike = p};
      for (const auto& [kept, updated] : {std::pair(1, 2), {1, 1}, {1, 0}, {0, 0}}) {
        for (int in_host = 2 - updated; in_host >= 0; --in_host) {
          LaneTimes work_ms{};
          const auto& price = prices.of(Group::kWeights).items[p];
          add(work_ms, price[kept ? 0 : 2], in_host / 2.0);
          add(work_ms, price[kept ? 1 : 3], (2 - updated - in_host) / 2.0);
          add(work_ms, prices.of(Group::kState).items[p][0], updated / 2.0);
          weights.work_ms.push_back(work_ms);
          weights.device.push_back(kept * 2 * kChunkBytes + updated * (kStateBytes + kChunkBytes));
          weights.host.push_back(in_host * kChunkBytes);
          weights.updated_there.push_back(updated);
        }
      }
      if (forced != Group::kWeights) items_.push_back(weights);
      if (forced == Group::kWeights) add(rest_ms_, prices.of(Group::kWeights).items[p][2], 1);
    }
    for (const Group group : {Group::kState, Group::kGradient}) {
      for (int c = 0; c < static_cast<int>(plan.chunks.size()); ++c) {
        Item item{.alike = 100 + static_cast<int>(group), .number = c};
        for (const HomeKind home : homes_of(group)) {
          if (group == Group::kState && home == HomeKind::kDevice) continue;  // with the partition's weights
          LaneTimes work_ms{};
          add(work_ms, prices.of(group).items[c / 2][place_of(group, home)], 0.5);
          const int64_t bytes = group == Group::kState ? kStateBytes : kChunkBytes;
          item.work_ms.push_back(work_ms);
          item.device.push_back(home == HomeKind::kDevice ? bytes : 0);
          item.host.push_back(home == HomeKind::kHost ? bytes : 0);
        }
        items_.push_back(item);
      }
    }
    // On NVMe a tensor takes as much of the ring as visits take and give of it at once: one buffer.
    for (int t = 0; t < static_cast<int>(model.tensors.size()); ++t) {
      const auto& price = prices.of(Group::kActivations).items[t];
      if (forced == Group::kActivations) {
        add(rest_ms_, price[1], 1);
      } else {
        items_.push_back({.work_ms = price, .device = {8192, 0, 0}, .host = {0, 8192, 8192}, .alike = 200 + t});
      }
    }
  }

  // The least of the longest resource over every assignment within these bytes.
  double best_ms(int64_t device, int64_t host) {
    best_ms_ = std::numeric_limits<double>::infinity();
    visit({.work_ms = rest_ms_, .device = device, .host = host});
    return best_ms_;
  }
  // What one item of each group can change at the most: as far as whole items may be from shares.
  double granularity_ms() const {
    std::map<int, double> spans;
    for (const Item& item : items_) {
      for (const LaneTimes& from : item.work_ms) {
        for (const LaneTimes& to : item.work_ms) {
          double span = 0;
          for (const GroupForms& forms : forms_) {
            for (const LaneTimes& sum : forms.sums) {
              double change = 0;
              for (size_t lane = 0; lane < sum.size(); ++lane) change += sum[lane] * (to[lane] - from[lane]);
              span = std::max(span, change);
            }
          }
          double& largest = spans[item.alike];
          largest = std::max(largest, span);
        }
      }
    }
    double all = 0;
    for (const auto& [alike, span] : spans) all += span;
    return all;
  }

 private:
  // An assignment of the items before one, and what it leaves.
  struct Assigned {
    size_t items = 0;
    size_t first_home = 0;  // of the next item: one that is alike has taken the homes before it
    int updated = 0;        // chunks on the device
    LaneTimes work_ms;
    int64_t device = 0, host = 0;  // bytes
  };
  void visit(const Assigned& so_far) {
    if (so_far.device < 0 || so_far.host < 0) return;
    const size_t i = so_far.items;
    if (i == items_.size()) {
      double longest = 0;
      for (const GroupForms& forms : forms_) longest = std::max(longest, forms.of(so_far.work_ms));
      best_ms_ = std::min(best_ms_, longest);
      return;
    }
    const Item& item = items_[i];
    Assigned next = so_far;
    ++next.items;
    next.first_home = 0;
    if (item.number >= 0 && item.number < so_far.updated) return visit(next);
    const bool next_alike = i + 1 < items_.size() && items_[i + 1].alike == item.alike;
    for (size_t home = so_far.first_home; home < item.work_ms.size(); ++home) {
      next.first_home = next_alike ? home : 0;
      next.updated = so_far.updated + (item.updated_there.empty() ? 0 : item.updated_there[home]);
      next.work_ms = so_far.work_ms;
      add(next.work_ms, item.work_ms[home], 1);
      next.device = so_far.device - item.device[home];
      next.host = so_far.host - item.host[home];
      visit(next);
    }
  }

  std::array<GroupForms, kLaneGroupCount> forms_;
  LaneTimes rest_ms_;
  std::vector<Item> items_;
  double best_ms_ = 0;
};

// Bytes of homes alone, without rings and tables.
Budgets bytes_at_home(const Plan& plan) {
  Budgets bytes{0, 0};
  for (const UseRow& row : plan.uses) {
    const bool home = row.use == "weights kept" || row.use == "weights" || row.use == "optimizer state" ||
                      row.use == "closed gradients" || row.use == "activation checkpoints";
    if (!home) continue;
    if (row.tier == Tier::kDevice) bytes.device_bytes += row.bytes;
    if (row.tier == Tier::kHost) bytes.host_bytes += row.bytes;
  }
  return bytes;
}

// Prices take the ring of tensors for one that does.
TEST_F(Homes, have_rings_that_hold_what_a_visit_passes_where_that_is_little_beside_them) {
  model_ = toy_model({.visits = 16, .tensor_elements = 2048}, Precision::kBf16);
  for (PartitionSpec& partition : model_.partitions) partition.parameters.back().shape = {32768};
  int little = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PlanOptions wish = options(seed);
    wish.chunk_elements = 8192;
    wish.micro_batches = 3;
    make_scarce(wish, seed);
    const auto plans = both(wish);
    const int64_t passes = plans ? passing_bytes(model_, plans->speeds) : 0;
    if (passes == 0 || 16 * passes > bytes_at_home(plans->speeds).host_bytes) continue;
    ++little;
    EXPECT_GE(plans->speeds.host_boundary.bytes, passes) << "seed " << seed;
  }
  EXPECT_GT(little, 1);
}

TEST_F(Homes, no_assignment_in_the_same_memory_leaves_the_busiest_resource_less_to_do) {
  model_ = small_model(3);
  int compared = 0, best = 0, better = 0, switched = 0, on_device = 0, in_part = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Group forced = seed % 2 == 0 ? Group::kActivations : Group::kWeights;
    PlanOptions wish = options(seed);
    shares_of(wish.placement, forced) = {{HomeKind::kHost, 1}};
    make_scarce(wish, seed);
    wish.device_bytes += static_cast<int64_t>(seed / 2 % 4) * 48 * kKiB;
    const auto plans = both(wish);
    if (!plans) continue;
    const HomePrices prices = price_homes(model_, wish, 1);
    Enumeration every(model_, plans->speeds, prices, forced);
    Budgets bytes = bytes_at_home(plans->speeds);
    if (forced == Group::kActivations) bytes.host_bytes -= 2 * 8192;
    if (forced == Group::kWeights) bytes.host_bytes -= 6 * 4096;
    bytes.host_bytes += std::min(plans->speeds.host_boundary.bytes, passing_bytes(model_, plans->speeds));
    const GroupTimes chosen = times_of(plans->speeds), ordered = times_of(plans->order);
    const double best_ms = every.best_ms(bytes.device_bytes, bytes.host_bytes);
    EXPECT_LE(longest_ms(chosen), best_ms + every.granularity_ms()) << "seed " << seed;
    ++compared;
    best += longest_ms(chosen) < 1.001 * best_ms ? 1 : 0;
    better += longest_ms(chosen) < 0.95 * longest_ms(ordered) ? 1 : 0;
    switched += longest(chosen) != longest(ordered) ? 1 : 0;
    const auto updated = std::ranges::count_if(plans->speeds.chunks, &ChunkHomes::updated_on_device);
    on_device += updated > 0 ? 1 : 0;
    in_part += updated > 0 && updated < 6 ? 1 : 0;
  }
  EXPECT_GT(compared, 40);
  EXPECT_GT(best, compared * 3 / 4);  // most are the very optimum, the others within what one item changes
  EXPECT_GT(better, 20);
  EXPECT_GT(switched, 0);
  EXPECT_GT(on_device, 5);
  EXPECT_GT(in_part, 4);
}

// --- what no choice may touch ---------------------------------------------------------------------------------------

// What the device updates lies there. Is there any?
bool expect_records_together(const Plan& plan) {
  bool any = false;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const ChunkHomes& homes = plan.chunks[c];
    EXPECT_EQ(homes.updated_on_device(), homes.weights == Home::kDevice);
    if (!homes.updated_on_device()) continue;
    any = true;
    EXPECT_EQ(homes.gradient, plan.options.update == UpdateMode::kReplay ? Home::kNowhere : Home::kDevice);
    EXPECT_GE(plan.kept_offset[plan.geometry.chunks()[c].partition], 0);
    EXPECT_GE(plan.host_staging.bytes,
              record_layout(plan.options.format(), Group::kState, plan.geometry.chunks()[c].elements).bytes);
  }
  return any;
}

TEST_F(Homes, budgets_are_never_exceeded_whatever_the_model_and_the_speeds) {
  int by_speeds = 0, on_device = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    model_ = random_model(seed, Precision::kBf16);
    PlanOptions wish = options(seed);
    wish.chunk_elements = 256 << (seed % 4);
    wish.micro_batches = 1 + static_cast<int>(seed % 3);
    wish.update = seed % 4 == 0 ? UpdateMode::kReplay : UpdateMode::kAuto;
    wish.own_device_bytes = static_cast<int64_t>(seed % 3) * 5000;
    make_scarce(wish, seed);
    wish.device_bytes *= 1 + static_cast<int64_t>(seed % 5);
    const HomePrices prices = price_homes(model_, wish, 1);
    for (const HomePrices* known : {&prices, static_cast<const HomePrices*>(nullptr)}) {
      const auto plan = planned(wish, {.prices = known});
      ASSERT_TRUE(plan) << seed;
      by_speeds += plan->homes_by == HomesBy::kSpeeds ? 1 : 0;
      int64_t host = 0, device = 0;
      for (const UseRow& row : plan->uses) (row.tier == Tier::kHost ? host : device) += row.bytes;
      for (const UseRow& row : plan->uses) device -= row.tier == Tier::kNvme ? row.bytes : 0;
      EXPECT_LE(plan->device_arena_bytes + wish.own_device_bytes, wish.device_bytes) << seed;
      EXPECT_LE(plan->host_arena_bytes + plan->table_bytes, wish.host_bytes) << seed;
      EXPECT_LE(host, wish.host_bytes) << seed;
      EXPECT_LE(device, wish.device_bytes) << seed;
      for (const UnitKind kind : unit_kinds(*plan)) {
        EXPECT_NO_THROW(build_unit(model_, *plan, kind)) << seed;  // no two live hops own the same bytes
      }
      on_device += expect_records_together(*plan) ? 1 : 0;
    }
  }
  EXPECT_GT(by_speeds, 8);
  EXPECT_GT(on_device, 8);
}

int updated_on_device(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.chunks, &ChunkHomes::updated_on_device));
}

TEST_F(Homes, state_is_on_the_device_where_that_makes_a_step_shorter_and_nowhere_else) {
  PlanOptions wish = options(1);
  wish.device_bytes = kMiB;
  wish.commit_interval = 50;                                          // a commit brings every record to the host
  for (const HomeKind forced : {HomeKind::kNvme, HomeKind::kHost}) {  // of activations
    wish.placement.activations = {{forced, 1}};
    wish.speeds->machine.device_update_gb_per_s = 1000;
    EXPECT_EQ(updated_on_device(make_plan(model_, wish)), 8);
    wish.speeds->machine.device_update_gb_per_s = 1e-9;
    EXPECT_EQ(updated_on_device(make_plan(model_, wish)), 0);
  }
}

TEST_F(Homes, in_the_fixed_order_state_has_what_weights_and_graphs_leave_of_the_device) {
  PlanOptions wish = options(1);
  wish.speeds.reset();
  wish.graph_bytes.assign(model_.visits.size(), 20000);
  int seen[3] = {};  // none, some, all of it
  for (int64_t device = Planner(model_, wish).smallest_device(wish.host_bytes).value(); device < 400 * kKiB;
       device += 5 * kKiB) {
    wish.device_bytes = device;
    const Plan plan = make_plan(model_, wish);
    const int there = updated_on_device(plan);
    ++seen[there == 0 ? 0 : there < 8 ? 1 : 2];
    if (there == 0) continue;
    expect_records_together(plan);
    for (const int64_t offset : plan.kept_offset) EXPECT_GE(offset, 0);
    for (int visit = 0; visit < 3; ++visit) EXPECT_TRUE(plan.keeps_graph(visit));
    for (int i = 0; i < there; ++i) EXPECT_TRUE(plan.chunks[plan.update_order[i]].updated_on_device());
  }
  for (const int count : seen) EXPECT_GT(count, 0);
}

TEST_F(Homes, visits_keep_no_graph_that_costs_more_than_to_compute_it_again) {
  PlanOptions wish = options(1);
  wish.graph_bytes.assign(model_.visits.size(), 20000);
  for (const double kept_ms : {0.3, 0.31}) {  // forward and backward take 0.4 without
    for (VisitTime& visit : wish.speeds->visits) {
      visit.keeping_forward_ms = 0.1;
      visit.kept_backward_ms = kept_ms;
    }
    const Plan plan = make_plan(model_, wish);
    for (int visit = 0; visit < 3; ++visit) EXPECT_EQ(plan.keeps_graph(visit), kept_ms == 0.3);
  }
}

TEST_F(Homes, where_one_group_of_a_chunk_is_forced_its_state_is_not_put_on_the_device) {
  for (const Group forced : {Group::kWeights, Group::kState, Group::kGradient}) {
    PlanOptions wish = options(1);
    shares_of(wish.placement, forced) = {{HomeKind::kHost, 1}};
    EXPECT_EQ(updated_on_device(make_plan(model_, wish)), 0);
    wish.speeds.reset();
    EXPECT_EQ(updated_on_device(make_plan(model_, wish)), 0);
  }
}

TEST_F(Homes, what_is_forced_stays_where_it_was_forced_to) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Group forced = kGroups[seed % 4];
    PlanOptions wish = options(seed);
    const auto homes = homes_of(forced);
    const HomeKind wanted[] = {homes[seed % homes.size()], homes.back()};  // of one half each, in canonical order
    shares_of(wish.placement, forced) = {{wanted[0], 0.5}, {wanted[1], 0.5}};
    make_scarce(wish, seed);
    const auto plans = both(wish);
    if (!plans) continue;
    ++compared;
    for (const Plan* plan : {&plans->order, &plans->speeds}) {
      if (forced == Group::kActivations) {
        const size_t tensors = plan->tensors.size();
        for (size_t i = 0; i < tensors; ++i) {
          EXPECT_EQ(kind_of(plan->tensors[i].home), wanted[2 * i >= tensors]) << seed;
        }
        continue;
      }
      const int chunks = static_cast<int>(plan->chunks.size());
      for (int c = 0; c < chunks; ++c) EXPECT_EQ(home_of_chunk(*plan, forced, c), wanted[2 * c >= chunks]) << seed;
    }
  }
  EXPECT_GT(compared, 12);
}

TEST_F(Homes, of_weights_beside_state_that_is_forced_to_the_device_are_kept_there) {
  using enum HomeKind;
  int by_speeds = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PlanOptions wish = options(seed);
    const double there = 0.125 * static_cast<double>(1 + seed % 7);  // of 8 chunks, two a partition
    wish.placement.state = {{kDevice, there}, {seed % 2 == 0 ? kHost : kNvme, 1 - there}};
    wish.update = seed % 3 == 0 ? UpdateMode::kReplay : UpdateMode::kAuto;
    make_scarce(wish, seed);
    const HomePrices prices = price_homes(model_, wish, 1);
    const auto plan = planned(wish, {.prices = &prices});
    ASSERT_TRUE(plan) << seed;
    by_speeds += plan->homes_by == HomesBy::kSpeeds ? 1 : 0;
    for (int c = 0; c < std::ssize(plan->chunks); ++c) {
      EXPECT_EQ(plan->chunks[c].updated_on_device(), c <= static_cast<int>(seed % 7)) << seed;
      if (plan->chunks[c].updated_on_device()) {
        EXPECT_GE(plan->kept_offset[c / 2], 0) << seed;
      }
    }
    for (const UnitKind kind : unit_kinds(*plan)) EXPECT_NO_THROW(build_unit(model_, *plan, kind)) << seed;
  }
  EXPECT_GT(by_speeds, 4);
}

// Where host memory is short, what may be elsewhere goes to the device.
TEST_F(Homes, of_gradients_that_are_forced_to_host_memory_stay_there_in_the_least_that_would_do) {
  PlanOptions wish = options(1);
  wish.placement.gradient = {{HomeKind::kHost, 1}};
  wish.host_bytes = Planner(model_, wish).smallest_host(wish.device_bytes).value();
  const auto plan = planned(wish);
  ASSERT_TRUE(plan);
  for (const ChunkHomes& homes : plan->chunks) EXPECT_EQ(homes.gradient, Home::kHost);
}

TEST_F(Homes, what_the_device_keeps_for_itself_is_part_of_its_budget_and_not_of_the_arena) {
  PlanOptions wish = options(1);
  const int64_t least = Planner(model_, wish).smallest_device(wish.host_bytes).value();
  wish.own_device_bytes = 16 * kKiB;
  wish.device_bytes = Planner(model_, wish).smallest_device(wish.host_bytes).value();
  EXPECT_EQ(wish.device_bytes, least + 16 * kKiB);
  EXPECT_LE(make_plan(model_, wish).device_arena_bytes, least);
}

TEST_F(Homes, the_smallest_budgets_are_those_of_the_fixed_order) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    PlanOptions wish = options(seed);
    const Planner planner(model_, wish);
    wish.host_bytes = planner.smallest_host(wish.device_bytes).value();
    EXPECT_TRUE(find_plan(model_, wish)) << seed;
    wish.host_bytes -= 1;
    EXPECT_FALSE(find_plan(model_, wish)) << seed;
    try {
      make_plan(model_, wish);
      FAIL() << "a plan in too little memory";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(wish.host_bytes + 1)), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice::testing
