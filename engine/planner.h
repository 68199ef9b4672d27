// The planner: fills byte budgets with homes. Build-time only; see plan.h for what it makes.
//
// Order of what budgets go to: what a step cannot do without (one buffer of each ring; sums of several visits on the
// device, in host memory where they do not fit; gradients and activations in host memory, on the device where they do
// not fit, on NVMe where that has no room either); then rings deep enough to work ahead; then homes. Where prices are
// known a linear program chooses among all of them that are free (planner_homes.cpp). Without, and for what that
// leaves, the order is fixed: activations, kept weights, graphs that save a recompute and then state on the device,
// weights and then state in host memory, first-needed chunks first.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/home_prices.h"
#include "engine/plan.h"

namespace sluice {

// Of chunks whose size is derived, in elements.
constexpr int64_t kSmallestDefaultChunk = 1024, kLargestDefaultChunk = int64_t{4} << 20;

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
  HostStateOrder host_state = HostStateOrder::kNeededFirst;
  EarlyUpdates early = EarlyUpdates::kAsWished;
  int64_t table_bytes = 0;  // of a plan much like this one's: a guess that saves building its programs twice
};

// Of a chunk, in host memory; less than any plan needs, about 1500: its homes, records, hops.
constexpr int64_t kLeastTableBytesOfAChunk = 1024;

class Planner {
 public:
  static constexpr int kBoundaryBuffers = 3;  // how deep the device's ring for boundary tensors is where there is room

  // What plans of one model have in common, whatever their options: made once for all planners of a search. For one
  // thread. The model must outlive it.
  struct Known;
  static std::shared_ptr<Known> know(const ModelSpec& model);
  // Model and options must outlive the planner, which is for one thread.
  Planner(const ModelSpec& model, const PlanOptions& options) : Planner(model, options, know(model)) {}
  Planner(const ModelSpec& model, const PlanOptions& options, std::shared_ptr<Known> known);

  // A plan within these budgets, or nothing where they are too small. With prices, homes are those that leave the
  // busiest resource the least to do; where there are no such the fixed order decides, and the plan says so.
  struct Attempt {
    Plan plan;
    double step_ms = 0;                // as predicted where speeds are known, of steps that are not clipped ...
    std::optional<double> clipped_ms;  // ... and of those that are, where these are others
  };
  std::optional<Attempt> attempt(Budgets budgets, const Pricing& pricing = {}) const;
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
  // Records and gradient of a chunk of so many elements: a buffer of the update ring and one of gradients', where all
  // of it is on NVMe.
  int64_t ring_buffer_bytes(int64_t elements) const;
  // Whether the options leave it to the planner to have state on the device.
  bool may_update_on_device() const;
  // Enough for everything at once, in either tier.
  int64_t everything_bytes() const;
  // A plan within that. What its tables take is not counted.
  Plan roomy() const;

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sluice
