// The planner: fills byte budgets with homes. Build-time only; see plan.h for what it makes.
//
// Order of what budgets go to: what a step cannot do without (one buffer of each ring; sums of several visits on the
// device, in host memory where they do not fit; gradients and activations in host memory, on the device where they do
// not fit, on NVMe where that has no room either); then rings deep enough to work ahead; then homes. Where prices are
// known a linear program chooses among all of them that are free (planner_homes.cpp). Without, and for what that
// leaves, the order is fixed: activations, kept weights, graphs that save a recompute and then state on the device,
// weights and then state in host memory, first-needed chunks first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "engine/home_prices.h"
#include "engine/home_program.h"
#include "engine/plan.h"
#include "engine/step.h"

namespace sluice {

struct Budgets {
  int64_t device_bytes = 0, host_bytes = 0;
};

// Ring depth where homes go by prices: that of the fixed order, which may leave one buffer each, or all that is wanted.
enum class RingDepth : uint8_t { kAsInOrder, kWanted };
// What it changes in the order of a step is nothing that prices know: plans with it and without are compared.
enum class StateToDevice : uint8_t { kWhereItFits, kWhereForced };
// Units with early updates are programs of their own, whose tables the smallest budgets do not hold.
enum class EarlyUpdates : uint8_t { kAsWished, kFew, kNone };

// How a plan's homes are chosen.
struct Pricing {
  const HomePrices* prices = nullptr;  // nothing: in the fixed order
  RingDepth depth = RingDepth::kAsInOrder;
  StateToDevice state = StateToDevice::kWhereItFits;
  EarlyUpdates early = EarlyUpdates::kAsWished;
  int64_t table_bytes = 0;  // of a plan much like this one's: a guess that saves building its programs twice
};

// Of a chunk, in host memory; less than any plan needs, about 1500: its homes, records, hops.
constexpr int64_t kLeastTableBytesOfAChunk = 1024;

class Planner {
 public:
  static constexpr int kBoundaryBuffers = 3;  // how deep the device's ring for boundary tensors is where there is room

  // What plans of one model have in common, whatever their options: made once for all planners of a search. For one
  // thread.
  struct Known {
    explicit Known(const ModelSpec& model) : uses(model) {}
    ModelUses uses;
    std::map<int64_t, Geometry> geometries;  // by the elements of a chunk
    HomeSolver homes;
  };
  // Model and options must outlive the planner, which is for one thread.
  Planner(const ModelSpec& model, const PlanOptions& options)
      : Planner(model, options, std::make_shared<Known>(model)) {}
  Planner(const ModelSpec& model, const PlanOptions& options, std::shared_ptr<Known> known);

  // A plan within these budgets, or nothing where they are too small. With prices, homes are those that leave the
  // busiest resource the least to do; where there are no such the fixed order decides, and the plan says so. Where
  // speeds are known it has a prediction of its step.
  std::optional<Plan> attempt(Budgets budgets, const Pricing& pricing = {}) const;
  // The same without building its programs: their tables are taken to need what pricing guesses.
  std::optional<Plan> glance(Budgets budgets, const Pricing& pricing) const;
  // Whether tables of about these bytes change little in a plan.
  static bool tables_are_small(int64_t bytes, int64_t host_bytes) { return bytes < host_bytes / 64; }
  // The smallest budget of one tier that would do, the other as given; nullopt: none would.
  std::optional<int64_t> smallest_device(int64_t host_bytes) const;
  std::optional<int64_t> smallest_host(int64_t device_bytes) const;
  // Of plans within this host budget.
  int64_t chunk_elements(int64_t host_bytes) const;
  // Those to try, the first that fits is taken: where the size is not given, half of it as well, whose buffers are
  // smaller, and then larger ones, whose tables are.
  std::vector<int64_t> chunk_sizes(int64_t host_bytes) const;
  // Records and gradient of a chunk of so many elements: a buffer of the update ring, where all of it is on NVMe.
  int64_t slot_bytes(int64_t elements) const;
  // Whether the options leave it to the planner to have state on the device.
  bool may_update_on_device() const;
  // Enough for everything at once, in either tier.
  int64_t everything_bytes() const;
  // A plan within that. What its tables take is not counted.
  Plan roomy() const;

 private:
  // What records that pass through the host's staging ring need of it.
  struct Staging {
    int64_t slot = 0;                            // one buffer
    int64_t ahead = 0;                           // to work ahead: two chunks' records, or the largest visit's weights
    void pass(int64_t state, int64_t weights) {  // of one chunk; 0: it has its home elsewhere
      slot = std::max({slot, state, weights});
      ahead = std::max(ahead, 2 * (state + weights));
    }
  };
  // What a draft of homes needs.
  struct Needs {
    int64_t device_fixed = 0, host_fixed = 0;                     // homes and long-lived buffers
    int64_t weights_group = 0, open_group = 0, boundary = 0;      // one buffer of each device ring
    int64_t update_slot = 0, gradient_slot = 0, tensor_slot = 0;  // one buffer of each host ring
    int64_t passing = 0;                                          // tensors between the device and NVMe, of one visit
    Staging staging;
  };
  struct Room {
    int64_t device = 0, host = 0;  // bytes left
    bool operator==(const Room&) const = default;
  };

  static constexpr int kWantedUpdateSlots = 4;  // how deep the update ring is where there is room

  // In the order of place(). First a draft, tried in several ways until one settles with its tables (planner.cpp).
  const Geometry& geometry(int64_t chunk_elements) const;
  Plan draft(int64_t chunk_elements) const;
  void force_homes(Plan& plan) const;
  static void update_on_device(Plan& plan, int chunk);
  std::vector<Pricing> ways(const Pricing& pricing) const;  // what to try, the first that fits is taken
  template <typename Make>
  auto first_plan(Budgets budgets, const Pricing& pricing, Make make) const;
  bool fits(Budgets budgets) const;
  struct Settled {
    Plan plan;
    UnitProgram steady;  // of its steps that are not clipped
  };
  std::optional<Settled> settle(Budgets budgets, int64_t chunk_elements, const Pricing& pricing) const;
  std::optional<Settled> settle_from(int64_t table_bytes, Budgets budgets, int64_t chunk_elements,
                                     const Pricing& pricing) const;
  std::optional<Plan> place(Budgets budgets, int64_t chunk_elements, const Pricing& pricing) const;
  struct Tables {
    int64_t bytes = 0;
    UnitProgram steady;  // as Settled has it
  };
  // Where they need more than the limit, a part of it that does.
  Tables tables(const Plan& plan, int64_t limit) const;
  Needs needs(const Plan& plan) const;
  Room room_beside(const Needs& least, Budgets budgets) const;

  // What does not fit leaves the device, then host memory (planner_spill.cpp). What the plan then needs.
  Needs spill_to_host(Plan& plan, Budgets budgets) const;
  Needs spill(Plan& plan, Budgets budgets) const;
  void spill_to_device(Plan& plan, Room& room) const;
  struct InHost {  // what may leave host memory
    Home* home = nullptr;
    int64_t bytes = 0, buffer_bytes = 0;  // the latter: of the rings that it passes through then
  };
  std::vector<InHost> gradients_in_host(Plan& plan) const;
  std::vector<InHost> activations_in_host(Plan& plan) const;
  static void spill_to_nvme(const std::vector<InHost>& list, Room& room);

  // One buffer of every ring, then as many as there is room for (planner_rings.cpp).
  void ring_needs(const Plan& plan, Needs& needs) const;
  int64_t boundary_need(const Plan& plan, int visit, BoundaryLayout& layout) const;
  void size_rings(Plan& plan, const Needs& needs, Room& room) const;
  void hold_passing(Plan& plan, const Needs& needs, Room& room) const;
  void shrink_rings(Plan& plan, Room& room) const;
  void deepen_rings(Plan& plan, Room& room) const;

  // Room that is left is filled in a fixed order (planner_fill.cpp) ...
  void fill(Plan& plan, Room room, StateToDevice state) const;
  void fill_device(Plan& plan, Room& room) const;
  void fill_graphs(Plan& plan, Room& room) const;
  bool may_keep_graph(const Plan& plan, int visit) const;
  void fill_state(Plan& plan, Room& room) const;
  void fill_host(Plan& plan, Room& room) const;

  // ... or by what each home costs, so that the busiest resource has the least to do (planner_homes.cpp).
  struct Passing;
  struct Shares;
  struct Shared;
  struct Quotas;
  Plan balance(const Plan& plan, const Needs& least, Budgets budgets, const Pricing& pricing) const;
  std::optional<Shared> share_memory(const Plan& draft, Budgets budgets, Shares shares, Room rings) const;
  Room room_for_homes(Plan& plan, Room chosen, Budgets budgets, Room rings) const;
  static Room ring_bytes(const Plan& plan);
  GroupTimes times_of(const Plan& plan, const HomePrices& prices) const;
  double part_of(const Plan& plan, Group group, int64_t amount, int priced) const;
  Passing passing(const Plan& plan) const;
  Shares shares_of(const Plan& plan, const HomePrices& prices, Passing passing) const;
  std::span<const HomeKind> choice_of(const Plan& plan, Group group, int item, Passing passing) const;
  void share_out(Plan& plan, const Shares& shares, const HomeSolution& solution) const;
  static void share_out_state(Plan& plan, const Quotas& quotas);
  static void share_out_weights(Plan& plan, const Quotas& quotas);
  static void share_out_gradients(Plan& plan, const Quotas& quotas);
  void share_out_tensors(Plan& plan, const Quotas& quotas) const;
  template <typename Each>
  void each_item(const Plan& plan, Each each) const;
  Room chosen_bytes(const Plan& plan) const;
  Room home_bytes(const Plan& plan, Group group, int item) const;
  static Room taken_at(HomeKind home, Room bytes);
  HomeKind home_kind(const Plan& plan, Group group, int item) const;
  const HomeShares& wish_for(Group group) const;

  // Homes are settled: offsets, times of updates, what a step moves (plan_layout.cpp).
  void assign_offsets(Plan& plan) const;
  void assign_device(Plan& plan) const;
  void assign_scratch(Plan& plan) const;
  void choose_update_times(Plan& plan) const;
  static void spread_early_updates(Plan& plan, double share);
  static void choose_read_ahead(Plan& plan);
  void describe(Plan& plan) const;
  void count_moves(Plan& plan, const UnitProgram& steady) const;

  int64_t tensor_bytes(int tensor) const { return round_up(model_.tensors[tensor].bytes(), kDeviceAlignmentBytes); }
  int tensor_of(size_t home) const { return static_cast<int>(home) / options_.micro_batches; }
  int64_t gradient_block_bytes(const Plan& plan, int chunk) const {
    return round_up(gradient_home_bytes(plan, chunk), kPlaneAlignmentBytes);
  }
  int64_t tensor_block_bytes(int tensor) const { return round_up(tensor_bytes(tensor), kPlaneAlignmentBytes); }
  int64_t gradient_home_bytes(const Plan& plan, int chunk) const;
  int64_t kept_bytes(const Plan& plan, int partition) const;

  const ModelSpec& model_;
  const PlanOptions& options_;
  const std::shared_ptr<Known> known_;
  const ModelUses& uses_;
};

}  // namespace sluice
