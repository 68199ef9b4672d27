// One training step as a program: engine/step.cpp tells it in the order bytes move.
//
// Build-time only: makes a UnitProgram from a model and a plan. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model.h"
#include "engine/plan.h"
#include "offload/program.h"

namespace sluice {

// An update hop's operands: where its planes lie, in one arena.
struct UpdateOperands {
  int32_t chunk = 0;
  Place place = Place::kHost;    // kDevice: the device updates them
  int32_t group = -1;            // of the update team, whose threads run it; -1: any
  int32_t gradient_extent = -1;  // the scratch extent that the gradient was read from: verified before it is believed
  int64_t state = 0, weights = 0, gradient = 0;
};

enum class Pass : uint8_t { kForward, kBackward, kEvaluate };
std::string_view name_of(Pass pass);  // "forward", "backward", "evaluation"

// A compute hop's operands: one visit's turn for one micro-batch.
struct ComputeOperands {
  int32_t visit = 0, micro_batch = 0;
  Pass pass = Pass::kForward;
  int32_t first = 0;   // of its addresses: addresses_of()
  int64_t graph = -1;  // on the device: kept by this forward, or for this backward; -1: there is none
};

struct UnitProgram {
  Program program;
  std::vector<UpdateOperands> updates;
  std::vector<ComputeOperands> turns;
  std::vector<int64_t> addresses;  // of all turns
  int64_t memory_bytes() const;
};

// Where a turn finds what it works on: offsets in the device arena, one for each of the visit's partitions, of the tensors
// it takes or of those it gives.
struct TurnAddresses {
  std::span<const int64_t> weights, inputs;
  std::span<const int64_t> outputs;  // of a backward: their gradients
  // Of a backward alone. Sums are open gradients of tensors; -1: one visit takes it, and there is none.
  std::span<const int64_t> input_gradients, open, input_sums, output_sums;
};
TurnAddresses addresses_of(const ModelSpec& model, const UnitProgram& unit, const ComputeOperands& operands);

enum class UnitKind : uint8_t {
  kTrain,             // updates of the step before beside the forward; backward, clip, reads for the updates to come
  kTrainSpeculative,      // ... with early updates; the unit before had them, too, and left the deferred ones
  kTrainSpeculativeAnew,  // ... with early updates; the unit before had none, or they are undone: all are left
  kEvaluate,          // the update half and a forward without the backward
  kDrain,             // the update half and the commit alone
};
constexpr int kUnitKinds = 5;
// The kinds that runs of this plan use.
std::vector<UnitKind> unit_kinds(const Plan& plan);
// The one of them that a run comes to whose steps are not clipped.
UnitKind unclipped_kind(const Plan& plan);
UnitProgram build_unit(const ModelSpec& model, const Plan& plan, UnitKind kind);
bool updates_early(UnitKind kind);
UpdateHalf update_half(UnitKind kind);
// A training unit reads the records of the next unit's first updates, if that has this update half.
std::optional<UpdateHalf> half_prefetched(UnitKind kind);
// Has this hop something to do in the middle of a run: a step is pending, was not clipped, and is committed?
bool due_in_steady_step(UnitKind kind, const Hop& hop);

// How visits share tensors and partitions; derived from the model once.
struct ModelUses {
  explicit ModelUses(const ModelSpec& model);
  std::vector<int> takers;       // per tensor: how many visits take it
  std::vector<int> last_taker;   // per tensor: whose backward contributes first
  std::vector<int> first_giver;  // per tensor: the others rewrite what this one gave
  std::vector<int> last_giver;   // per tensor
  std::vector<int> first_visit;  // per partition: whose backward contributes last
  std::vector<int> last_visit;   // per partition: whose backward contributes first
  std::vector<int> visits;       // per partition: how many visits use it
  bool shared_tensor(int t) const { return takers[t] > 1; }
  bool shared_partition(int p) const { return visits[p] > 1; }
};

// What the parts of a unit are built from.
struct PlannedModel {
  const ModelSpec& model;
  const ModelUses& uses;
  const Plan& plan;
};
// As above, where the model's uses are known already.
UnitProgram build_unit(const PlannedModel& planned, UnitKind kind);

// Boundary tensors of one turn, and sums of their gradients, that pass through the device's boundary ring, relative to
// the start of its buffer; -1: the tensor has its place elsewhere. In the order of takes and gives.
struct BoundaryLayout {
  std::vector<int64_t> inputs, outputs, contributions;
  std::vector<int64_t> input_sums, output_sums;
  int64_t bytes = 0;
};
// In place of what `layout` held, whose memory is used again: there are many turns.
void lay_out_boundary(const PlannedModel& planned, const ComputeOperands& turn, BoundaryLayout& layout);

}  // namespace sluice
