// How a plan is made, a step a file: a draft with everything at its lowest tier and what is asked for where it has to
// be (planner.cpp), what does not fit moved down (planner_spill.cpp), rings (planner_rings.cpp), homes in the fixed
// order (planner_fill.cpp) or by prices (planner_homes.cpp), offsets and times (planner_layout.cpp). Internal to the
// planner.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/home_program.h"
#include "engine/planner.h"
#include "engine/step.h"

namespace sluice {

struct Planner::Known {
  explicit Known(const ModelSpec& model) : uses(model) {}
  ModelUses uses;
  std::map<int64_t, Geometry> geometries;  // by the elements of a chunk
  HomeSolver homes;
};

class Planner::Impl {
 public:
  Impl(const ModelSpec& model, const PlanOptions& options, std::shared_ptr<Known> known)
      : model_(model), options_(options), known_(std::move(known)), uses_(known_->uses) {}

  // As the planner's own.
  std::optional<Attempt> attempt(Budgets budgets, const Pricing& pricing) const;
  std::optional<Plan> glance(Budgets budgets, const Pricing& pricing) const;
  std::optional<int64_t> smallest_device(int64_t host_bytes) const;
  std::optional<int64_t> smallest_host(int64_t device_bytes) const;
  int64_t chunk_elements(int64_t host_bytes) const;
  std::vector<int64_t> chunk_sizes(int64_t host_bytes) const;
  int64_t ring_buffer_bytes(int64_t elements) const;
  bool may_update_on_device() const;
  int64_t everything_bytes() const;
  Plan roomy() const;

 private:
  // What records that pass through the host's staging ring need of it.
  struct Staging {
    int64_t buffer = 0;                          // one of the ring
    int64_t ahead = 0;                           // to work ahead: two chunks' records, or the largest visit's weights
    void pass(int64_t state, int64_t weights) {  // of one chunk; 0: it has its home elsewhere
      buffer = std::max({buffer, state, weights});
      ahead = std::max(ahead, 2 * (state + weights));
    }
  };
  // What a draft of homes needs.
  struct Needs {
    int64_t device_fixed = 0, host_fixed = 0;                           // homes and long-lived buffers
    int64_t weights_group = 0, open_group = 0, boundary = 0;            // one buffer of each device ring
    int64_t update_buffer = 0, gradient_buffer = 0, tensor_buffer = 0;  // one buffer of each host ring
    int64_t passing = 0;  // tensors between the device and NVMe, of one visit
    Staging staging;
  };
  struct Room {
    int64_t device = 0, host = 0;  // bytes left
    bool operator==(const Room&) const = default;
  };

  static constexpr int kWantedUpdateBuffers = 4;  // how deep the rings of updates are where there is room

  // In the order of place(). First a draft, tried in several ways until one settles with its tables (planner.cpp).
  const Geometry& geometry(int64_t chunk_elements) const;
  Plan draft(int64_t chunk_elements) const;
  void force_homes(Plan& plan) const;
  static void update_on_device(Plan& plan, int chunk);
  std::vector<Pricing> ways(const Pricing& pricing) const;  // what to try, the first that fits is taken
  template <typename Make>
  auto first_plan(Budgets budgets, const Pricing& pricing, Make make) const;
  bool fits(Budgets budgets) const;
  struct Steps {
    UnitProgram unclipped, deferred;  // the latter only where clipped steps are other ones
  };
  struct Settled {
    Plan plan;
    Steps steps;
  };
  std::optional<Settled> settle(Budgets budgets, int64_t chunk_elements, const Pricing& pricing) const;
  std::optional<Settled> settle_from(int64_t table_bytes, Budgets budgets, int64_t chunk_elements,
                                     const Pricing& pricing) const;
  std::optional<Plan> place(Budgets budgets, int64_t chunk_elements, const Pricing& pricing) const;
  struct Tables {
    int64_t bytes = 0;
    Steps steps;
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
  std::vector<InHost> gradients_in_host(Plan& plan, int64_t buffer_bytes) const;
  std::vector<InHost> activations_in_host(Plan& plan) const;
  static void spill_to_nvme(const std::vector<InHost>& list, Room& room);

  // One buffer of every ring, then as many as there is room for (planner_rings.cpp).
  void ring_needs(const Plan& plan, Needs& needs) const;
  int64_t boundary_need(const Plan& plan, int visit, BoundaryLayout& layout) const;
  void size_rings(Plan& plan, const Needs& needs, Room& room) const;
  void hold_passing(Plan& plan, const Needs& needs, Room& room) const;
  void shrink_rings(Plan& plan, Room& room) const;
  void deepen_rings(Plan& plan, Room& room) const;
  int64_t more_gradients(const Plan& plan, Room room) const;

  // Room that is left is filled in a fixed order (planner_fill.cpp) ...
  void fill(Plan& plan, Room room, StateToDevice state) const;
  void fill_device(Plan& plan, Room& room) const;
  void fill_graphs(Plan& plan, Room& room) const;
  bool may_keep_graph(const Plan& plan, int visit) const;
  void fill_state(Plan& plan, Room& room) const;
  void fill_host(Plan& plan, Room& room) const;
  static std::vector<int> for_state_in_host(const Plan& plan, std::vector<int> chunks);

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

  // Homes are settled: offsets, times of updates, what a step moves (planner_layout.cpp).
  void assign_offsets(Plan& plan, int64_t host_bytes) const;
  void assign_device(Plan& plan) const;
  void assign_scratch(Plan& plan) const;
  void choose_update_times(Plan& plan, int64_t host_bytes) const;
  void take_other_slots(Plan& plan, int64_t host_bytes, double share) const;
  static void spread_early_updates(Plan& plan, double share);
  static void choose_prefetched(Plan& plan);
  void describe(Plan& plan) const;
  void count_moves(Plan& plan, const UnitProgram& steady) const;

  int64_t tensor_bytes(int tensor) const { return round_up(model_.tensors[tensor].bytes(), kDeviceAlignmentBytes); }
  int tensor_of(size_t home) const { return static_cast<int>(home) / options_.micro_batches; }
  int64_t tensor_block_bytes(int tensor) const { return round_up(tensor_bytes(tensor), kPlaneAlignmentBytes); }
  int64_t gradient_home_bytes(const Plan& plan, int chunk) const;
  int64_t kept_bytes(const Plan& plan, int partition) const;

  const ModelSpec& model_;
  const PlanOptions& options_;
  const std::shared_ptr<Known> known_;
  const ModelUses& uses_;
};

}  // namespace sluice
