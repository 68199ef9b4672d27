// Where a plan puts everything: each range within its arena and apart from all others, and a table that has every byte.
#include <algorithm>

#include "tests/engine/homes_fixture.h"

namespace sluice::testing {
namespace {

struct Range {
  int64_t from = 0, bytes = 0;
};

// What has an address of its own for a whole step.
class Ranges {
 public:
  Ranges(const ModelSpec& model, const Plan& plan) : model_(model), plan_(plan) {
    for (const Ring& ring : {plan.host_update, plan.host_staging, plan.host_gradients, plan.host_boundary})
      add(Home::kHost, ring.offset, ring.bytes);
    for (const Ring& ring : {plan.device_weights, plan.device_open, plan.device_boundary})
      add(Home::kDevice, ring.offset, ring.bytes);
    for (int c = 0; c < std::ssize(plan.chunks); ++c) add_chunk(c);
    for (size_t p = 0; p < plan.kept_offset.size(); ++p) {
      if (plan.kept_offset[p] < 0) continue;
      add(Home::kDevice, plan.kept_offset[p], plan.weights_bytes(plan.geometry.partitions()[p].elements));
    }
    for (const OpenSlot& slot : plan.open_slots) add(slot.home, slot.offset, slot.bytes());
    add_visits();
  }
  std::vector<Range> device, host;

 private:
  void add(Home home, int64_t from, int64_t bytes) {
    if (bytes == 0 || home == Home::kNvme || home == Home::kNowhere) return;
    (home == Home::kHost ? host : device).push_back({from, bytes});
  }
  void add_chunk(int c) {
    const ChunkHomes& homes = plan_.chunks[c];
    const int64_t weights = plan_.record_bytes(c, Group::kWeights), state = plan_.record_bytes(c, Group::kState);
    if (homes.weights == Home::kHost) add(Home::kHost, homes.weights_offset, weights);
    add(homes.state, homes.state_offset, state);
    add(homes.gradient, homes.gradient_offset, plan_.gradient_bytes(plan_.geometry.chunks()[c].elements));
    if (!plan_.has_other_slot(c)) return;
    add(Home::kHost, plan_.other_slots[c].state, state);
    add(Home::kHost, plan_.other_slots[c].weights, weights);
  }
  void add_visits() {
    const int micro_batches = plan_.options.micro_batches;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorSpec& tensor = model_.tensors[i / static_cast<size_t>(micro_batches)];
      add(plan_.tensors[i].home, plan_.tensors[i].offset, tensor.bytes());
    }
    for (int v = 0; v < std::ssize(plan_.graphs); ++v) {
      if (plan_.keeps_graph(v)) add(Home::kDevice, plan_.graphs[v], micro_batches * plan_.graph_bytes(v));
    }
    add(Home::kDevice, plan_.workspace_offset, plan_.options.workspace_bytes);
  }

  const ModelSpec& model_;
  const Plan& plan_;
};

void expect_apart(std::vector<Range> ranges, int64_t arena_bytes) {
  std::ranges::sort(ranges, {}, &Range::from);
  int64_t end = 0;
  for (const Range& range : ranges) {
    EXPECT_GE(range.from, end);
    end = range.from + range.bytes;
  }
  EXPECT_LE(end, arena_bytes);
  EXPECT_EQ(round_up(end, kPlaneAlignmentBytes), arena_bytes);
}

int64_t rows_of(const Plan& plan, Tier tier) {
  int64_t bytes = 0;
  for (const UseRow& row : plan.uses) bytes += row.tier == tier ? row.bytes : 0;
  return bytes;
}

int64_t sum_of(const std::vector<Range>& ranges) {
  int64_t bytes = 0;
  for (const Range& range : ranges) bytes += range.bytes;
  return bytes;
}

void expect_a_place_for_everything(const ModelSpec& model, const Plan& plan) {
  const Ranges ranges(model, plan);
  expect_apart(ranges.device, plan.device_arena_bytes);
  expect_apart(ranges.host, plan.host_arena_bytes);
  const PlanOptions& wish = plan.options;
  EXPECT_LE(plan.device_arena_bytes + wish.own_device_bytes, wish.device_bytes);
  EXPECT_LE(plan.host_arena_bytes + plan.table_bytes, wish.host_bytes);
  // Tensors have the alignment of theirs in the table.
  const auto padding = static_cast<int64_t>(plan.tensors.size()) * kDeviceAlignmentBytes;
  const int64_t device = sum_of(ranges.device) + wish.own_device_bytes, host = sum_of(ranges.host) + plan.table_bytes;
  EXPECT_GE(rows_of(plan, Tier::kDevice), device);
  EXPECT_LE(rows_of(plan, Tier::kDevice), device + padding);
  EXPECT_GE(rows_of(plan, Tier::kHost), host);
  EXPECT_LE(rows_of(plan, Tier::kHost), host + padding);
  EXPECT_EQ(rows_of(plan, Tier::kNvme), plan.disk_bytes);
  for (const UnitKind kind : unit_kinds(plan)) EXPECT_NO_THROW(build_unit(model, plan, kind));
}

// What a random plan is asked for, little of it at once.
class PlanRanges : public Homes {
 protected:
  PlanOptions random_wish(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    do {
      model_ = below(4) == 0 ? tiled_model(1 + below(3), 1 + below(3), Precision::kBf16)
                             : random_model(random(), Precision::kBf16);
    } while (model_.visits.size() > 16);
    PlanOptions wish = options(seed);
    wish.workspace_bytes = 3000 * below(3);
    wish.own_device_bytes = 8192 * below(2);
    wish.micro_batches = 1 + below(4);
    wish.chunk_elements = 128 << below(4);
    wish.update = below(4) == 0 ? UpdateMode::kReplay : below(2) == 0 ? UpdateMode::kDeferred : UpdateMode::kAuto;
    wish.commit_interval = wish.update == UpdateMode::kReplay ? 1 : 1 + 3 * below(2);
    if (below(2) == 0) wish.speculated_share = 0.5;
    for (size_t v = 0; below(2) == 0 || v > 0; ++v) {
      if (v == model_.visits.size()) break;
      wish.graph_bytes.push_back(1000 * below(3));
    }
    force_something(wish, below);
    wish.device_bytes = wish.host_bytes = 64 * kMiB;
    const auto up_to = [&](int64_t least) { return least + least * below(150) / 100; };
    wish.device_bytes = up_to(Planner(model_, wish).smallest_device(wish.host_bytes).value());
    wish.host_bytes = up_to(Planner(model_, wish).smallest_host(wish.device_bytes).value());
    return wish;
  }

 private:
  void force_something(PlanOptions& wish, auto below) {
    using enum HomeKind;
    const HomeShares in_thirds = {{kDevice, 0.3}, {kHost, 0.3}, {kNvme, 0.4}};
    if (below(3) == 0) wish.placement.activations = in_thirds;
    switch (below(6)) {
      case 0:
        wish.placement.state = {{kDevice, 0.2 * (1 + below(4))}, {kNvme, 0.8 - 0.2 * below(4)}};
        wish.placement.state[1].share = 1 - wish.placement.state[0].share;
        break;
      case 1:
        if (wish.update != UpdateMode::kReplay) wish.placement.gradient = in_thirds;
        break;
      case 2:
        wish.placement.weights = {{kHostAndDevice, 0.3}, {kHost, 0.3}, {kNvme, 0.4}};
        break;
      default:
        break;
    }
  }
};

TEST_F(PlanRanges, lie_within_their_arenas_and_apart_and_the_table_has_every_byte_of_them) {
  int by_speeds = 0;
  for (uint64_t seed = 112; seed <= 167; ++seed) {
    SCOPED_TRACE(seed);
    const PlanOptions wish = random_wish(seed);
    const HomePrices prices = price_homes(model_, wish, wish.commit_interval);
    for (const HomePrices* known : {&prices, static_cast<const HomePrices*>(nullptr)}) {
      const auto plan = planned(wish, {.prices = known});
      ASSERT_TRUE(plan);
      by_speeds += plan->homes_by == HomesBy::kSpeeds ? 1 : 0;
      expect_a_place_for_everything(model_, *plan);
    }
  }
  EXPECT_GT(by_speeds, 8);
}

// In the fixed order, where room on the device is for a chunk's state and not for its partition's weights.
TEST_F(PlanRanges, of_state_on_the_device_come_with_room_for_its_weights) {
  for (PartitionSpec& partition : model_.partitions) partition.parameters = {{partition.parameters[0].name, {16384}}};
  PlanOptions wish = options(1);
  wish.speeds.reset();
  const int64_t least = Planner(model_, wish).smallest_device(wish.host_bytes).value();
  int there = 0;
  for (int64_t more = 0; more < 512 * kKiB; more += 4 * kKiB) {
    wish.device_bytes = least + more;
    const auto plan = planned(wish);
    ASSERT_TRUE(plan);
    there += plan->chunks[0].updated_on_device() ? 1 : 0;
    expect_a_place_for_everything(model_, *plan);
    ASSERT_FALSE(HasFailure()) << more;
  }
  EXPECT_GT(there, 0);
}

// Tensors of one micro-batch are on the device where those of the other are not: of what the first visit gives, or of
// what the last one takes.
TEST_F(PlanRanges, of_boundary_tensors_hold_what_any_micro_batch_of_a_visit_passes) {
  const auto tensor = [](const char* name, int64_t elements) { return TensorSpec{name, elements, DType::kBf16}; };
  for (const bool gives : {true, false}) {
    model_ = small_model(3);
    model_.tensors = {tensor("x0", 4096), tensor("x1", 4096)};
    if (gives) model_.tensors.push_back(tensor("x2", 128));
    std::vector<VisitSpec>& visits = model_.visits;
    for (VisitSpec& visit : visits) visit.takes = visit.gives = {};
    if (gives) {
      visits[0].gives = {0, 1}, visits[1].takes = {0}, visits[1].gives = {2}, visits[2].takes = {1, 2};
    } else {
      visits[0].gives = {0}, visits[1].gives = {1}, visits[2].takes = {0, 1};
    }
    PlanOptions wish = options(1);
    wish.micro_batches = 2;
    const double first = 1.0 / (2 * static_cast<double>(model_.tensors.size()));
    wish.placement.activations = {{HomeKind::kDevice, first}, {HomeKind::kHost, 1 - first}};
    wish.device_bytes = Planner(model_, wish).smallest_device(wish.host_bytes).value();
    const auto plan = planned(wish);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->tensor(0, 0).home, Home::kDevice);
    EXPECT_EQ(plan->tensor(0, 1).home, Home::kHost);
    EXPECT_GE(plan->device_boundary.bytes, 2 * 4096 * 2);
    expect_a_place_for_everything(model_, *plan);
  }
}

}  // namespace
}  // namespace sluice::testing
