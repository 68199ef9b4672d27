// The engine's parts, in dependency order: each uses only those above it. Internal to engine/.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/errors.h"
#include "core/ledger.h"
#include "core/topology.h"
#include "cpu_adam/update_team.h"
#include "engine/clip.h"
#include "engine/engine.h"
#include "engine/near_device.h"
#include "engine/parameter_groups.h"
#include "engine/record_access.h"
#include "engine/speculation.h"
#include "engine/step.h"
#include "engine/update_pass.h"
#include "offload/device.h"
#include "offload/executor.h"

namespace sluice {

// One turn on the caller's thread. All vectors are as long as the largest visit needs from the start: no allocation in
// a step.
struct Use::State {
  Engine::Impl* engine = nullptr;
  int64_t number = 0;  // of this turn, the engine's first one being 1
  int hop = -1;
  const ComputeOperands* operands = nullptr;  // null: between turns
  Pass pass = Pass::kForward;
  std::vector<WeightView> weights;
  std::vector<TensorView> inputs, outputs, output_gradients, input_gradients;
  std::span<std::byte> graph;
  std::vector<float*> open;                     // per weight
  std::vector<float*> input_sums, output_sums;  // per input, output: the sum of its gradients, or null
};

class Engine::Impl final : public LaneWork {
 public:
  Impl(ModelSpec model_spec, EngineOptions engine_options, const ParameterSource& source);
  ~Impl() override = default;

  // --- units (engine.cpp)
  void choose(UnitKind kind);  // as the unit that runs next: nothing of it has happened
  void begin(UnitKind kind);
  void begin_step(double with_learning_rate);
  UnitKind training_kind() const;
  void order_updates();
  UpdateOrder early_order(std::span<const AdamStep> steps) const;
  void end_unit(UnitKind kind);
  void settle_speculation();
  void move_to_other_slots();
  bool must_run_again();
  bool update_pending(int chunk) const;
  bool stale_on_device() const;
  bool serves_a_visit(int chunk) const;
  bool verifies_for_a_visit(int chunk) const;
  bool has_changed(int chunk) const;
  Use enter(int visit, Pass pass);
  void leave(int64_t number) noexcept;
  StepEnd finish_step();
  void abort_step();
  double evaluate(int micro_batches, const Compute& compute);
  void drain();
  void set_progress(int64_t data_position, std::span<const std::byte> caller);
  void ready() const;  // throws what spent the engine
  void check_between_steps() const;
  const UnitTimes& finish_unit();  // whatever ended it early spends the engine
  void spend() noexcept;           // in a handler: of what it handles
  void abort_in_handler();         // ... which is worth more than what giving the step up throws
  template <typename Work>
  auto guarded(Work work) {
    // I/O, corruption and numerics leave a step half applied in memory: only the store is whole.
    try {
      return work();
    } catch (const Error&) {
      spend();
      throw;
    }
  }

  // --- replays (replay.cpp)
  Replay replay(LaneGroup resource, const Compute& compute);
  void replay_compute(const Compute& compute);
  void order_of_middle_step();
  void clear_update_inputs();
  void end_replay();

  // --- turns (use.cpp)
  void fill_use(int hop, const ComputeOperands& operands, Pass pass);
  void fill_tensors(std::vector<TensorView>& views, const std::vector<int>& tensors, std::span<const int64_t> at) const;
  void fill_sums(std::vector<float*>& sums, std::span<const int64_t> at) const;
  void round_shared_gradients();
  void add_shared_contributions();
  const Parameter& contributed_parameter(int weight) const;
  void contribute(int weight, const std::byte* gradient, DType dtype);
  void contribute_part(int weight, int64_t first, const GradientView& part);
  float* zeroed_open(int weight);
  void run_control_hops();  // close and clip, where they head the compute lane
  void close_partition(const Hop& hop);
  void clip();
  StepEnd measured_step() const;
  StepEnd end_step();
  [[noreturn]] void report_non_finite() const;

  // --- LaneWork, on the executor's thread (lane_work.cpp)
  bool due(const Hop& hop) const override;
  void starting(const Hop& hop) override;
  void start_update(int hop_number, const Hop& hop) override;
  const StepState& commit_state() override { return captured; }
  TraceLabel hop_label(const Hop& hop) const override;
  static void update_task(void* self, int hop);
  std::span<const std::byte> bytes_of(const Hop& hop) const;  // in host memory
  void verify_scratch(const Hop& hop) const;
  void update_in_turn(const UpdateOperands& operands);
  void update_early(const UpdateOperands& operands);
  void note_changed(int chunk);

  ModelSpec model;
  EngineOptions options;
  ModelUses uses;
  std::unique_ptr<Topology> topology;
  NearDevice near;
  Plan plan;
  ParameterGroups groups;
  Ledger ledger;
  // Of what has two slots in host memory: where it was first, or the other (Plan::other_slots).
  enum class Slots : uint8_t { kFirst, kOther } slots = Slots::kFirst;
  std::array<UnitProgram, size_t{2} * kUnitKinds> units;  // with records there, and in the other ones
  UnitProgram& unit_of(UnitKind kind, Slots where) {
    return units[static_cast<size_t>(where) * kUnitKinds + static_cast<size_t>(kind)];
  }
  Arena host;
  std::unique_ptr<Device> device;
  std::unique_ptr<RecordStore> store;
  std::unique_ptr<UpdatePass> update_pass;
  std::unique_ptr<RecordAccess> access;

  // What is true between units.
  StepState captured;                              // as the last step ended: what the next commit carries
  UpdateOrder order;                               // of the unit that runs
  UpdateOrder early;                               // ... of the updates in its backward
  std::vector<AdamStep> order_steps, early_steps;  // what they refer to
  double predicted_scale = 1;
  std::optional<double> known_scale;          // replay: the step runs again, with this
  std::exception_ptr early_failure;           // an update in the backward made a value non-finite
  Speculated speculated = Speculated::kNone;  // what became of the last step's updates in its backward
  Speculation speculation;                    // UpdateMode::kAuto
  enum class Flag : uint8_t { kNo, kYes };
  Flag pending = Flag::kNo;              // the last step's update is still to be applied
  std::optional<UpdateHalf> prefetched;  // the last unit read the first chunks of such an update half ahead
  Flag kept_valid = Flag::kNo;           // weights kept on the device are those of the last step
  Flag on_device = Flag::kNo;            // ... and records at home on the device are there
  Flag unsaved = Flag::kNo;              // captured is newer than what is committed
  Flag commit_asked_for = Flag::kNo;     // by commit_beside_next_step()
  double pending_scale = 1, pending_learning_rate = 0;
  std::vector<Flag> dirty;  // per record at home in host memory: changed since it was written
  std::exception_ptr spent;

  // Of the unit that runs.
  const UnitProgram* unit = nullptr;
  UnitKind unit_kind = UnitKind::kTrain;
  Flag running = Flag::kNo;
  std::optional<LaneGroup> rehearsed;  // a replay runs, of this resource
  std::atomic<Flag> aborted = Flag::kNo;
  std::mutex early_mutex;   // guards early_failure while update threads run
  size_t next_compute = 0;  // position in the compute lane
  double learning_rate = 0;
  std::vector<Flag> contributed;    // per parameter
  std::vector<double> norm_parts;   // per parameter
  std::vector<ClosedPiece> pieces;  // scratch of close_partition
  double loss_sum = 0;
  ClipResult clipped;
  Use::State use;
  StepLanes lanes;

  // Last: their threads use all of the above.
  std::unique_ptr<UpdateTeam> team;
  std::unique_ptr<Executor> executor;

 private:
  void open_store(const ParameterSource& source);
  void probe(StoreOptions& store_options) const;
  void check_from_step(const RecordStore* found) const;
  int node_near_device() const;
  void build_units();
  void charge_ledger();
  void make_host_arena(int near_device);
  void reserve_scratch();
};

}  // namespace sluice
