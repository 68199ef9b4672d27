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
#include "engine/open_gradients.h"
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
  void end_unit();
  Speculated settle_speculation();
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
  void seal_record(const Hop& hop) const;
  void verify_record(const Hop& hop) const;
  void seal_scratch(const Hop& hop) const;
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

  enum class Flag : uint8_t { kNo, kYes };

  // What one unit leaves to the next. end_unit() makes it anew, of what it was and of what the unit has done; between
  // units end_step() adds the update and the commit that its step is owed, others ask for a commit, and a replay takes
  // back what it has overwritten. From it training_kind() chooses the next unit, order_updates() tells that what to do,
  // and due() what each of its hops has to. While a unit runs nobody changes it: all threads read it without a lock.
  struct BetweenUnits {
    struct OwedUpdate {
      double scale = 1, learning_rate = 0;
    };
    std::optional<OwedUpdate> pending;          // of the last step; nothing: it is applied, or the step was skipped
    Speculated speculated = Speculated::kNone;  // what became of the last step's updates in its backward
    std::optional<UpdateHalf> prefetched;       // the last unit read the first chunks of such an update half ahead
    Flag kept_valid = Flag::kNo;                // weights kept on the device are those of the last step
    Flag on_device = Flag::kNo;                 // ... and records at home on the device are there
    Flag unsaved = Flag::kNo;                   // `captured` is newer than what is committed
    Flag commit_asked_for = Flag::kNo;          // by commit_beside_next_step(), whatever the interval
  };
  BetweenUnits between;

  // The unit that runs, or ran last. choose() makes it anew.
  struct RunningUnit {
    // What it is to do, told before the executor begins and then read by its thread and by update threads.
    UnitKind kind = UnitKind::kTrain;
    const UnitProgram* unit = nullptr;
    int64_t step = 0;                    // that it trains, of a drain the last one; -1: it evaluates
    std::optional<LaneGroup> rehearsed;  // it is a replay, of this resource
    UpdateOrder order;                   // its commit, and the updates of the step before
    UpdateOrder early;                   // the updates in its own backward ...
    double predicted_scale = 1;          // ... for which they are right
    // How far it is and what it has found, for the caller's thread alone where nothing else is said.
    Flag under_way = Flag::kNo;
    size_t next_compute = 0;  // position in the compute lane
    double loss_sum = 0;      // the device adds to it
    ClipResult clipped;
    std::exception_ptr early_failure;  // an early update made a value non-finite; early_mutex guards it meanwhile
  };
  RunningUnit running;
  std::atomic<Flag> aborted = Flag::kNo;           // of it: the caller's thread tells the executor's, which asks due()
  std::mutex early_mutex;                          // for update threads, several of which may fail
  std::vector<AdamStep> order_steps, early_steps;  // what order and early refer to

  // What goes on from step to step.
  StepState captured;                 // as the last step ended: what the next commit carries
  double learning_rate = 0;           // of the step that runs
  std::optional<double> known_scale;  // replay: the step runs again, with this
  Speculation speculation;            // UpdateMode::kAuto
  // Per chunk, of its weights and its state where they are at home in memory: changed since they were written. While a
  // unit runs, hops of the chunk set and clear them, which the program orders.
  std::vector<std::array<Flag, 2>> changed;
  Flag& changed_of(int chunk, Group group) { return changed[chunk][static_cast<size_t>(group)]; }
  Flag changed_of(int chunk, Group group) const { return changed[chunk][static_cast<size_t>(group)]; }
  std::exception_ptr spent;
  StepLanes lanes;  // of the last step

  // What turns and closing fill again and again, as large as they become from the start.
  OpenGradients open_gradients{0};  // per parameter
  std::vector<double> norm_parts;   // per parameter
  std::vector<ClosedPiece> pieces;  // scratch of close_partition
  Use::State use;

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
