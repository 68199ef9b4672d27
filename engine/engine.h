// The engine: trains a list of visits whose bytes live in three tiers. No LibTorch here: compute is a callable.
//
// Thread-safety: any thread may call, one at a time. After an Error that ended a step, an evaluation or a drain the
// engine is spent: nothing of it runs any more, and every call that trains, evaluates, drains or reads throws the same
// error; what only tells (step(), committed(), plan(), written_bytes(), the trace ...) still does. The store opens at
// its last committed step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"
#include "core/topology.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/update_team.h"
#include "engine/lane_group.h"
#include "engine/loss_scale.h"
#include "engine/model.h"
#include "engine/parameter_groups.h"
#include "engine/placement.h"
#include "engine/plan.h"
#include "engine/record_access.h"
#include "engine/step.h"
#include "engine/step_lanes.h"
#include "engine/visit_turn.h"
#include "offload/device.h"
#include "swap/record_store.h"

namespace sluice {

class Engine;

// The turn of a visit whose bytes the engine moves; its destruction ends the turn. Once its step has been given up a
// turn is over: what is called of it then throws std::logic_error.
class Use final : public VisitTurn {
 public:
  Use(Use&& other) noexcept;
  Use& operator=(Use&&) = delete;
  ~Use() override;

  int visit() const;
  int micro_batch() const;
  Pass pass() const override;
  std::span<const WeightView> weights() const override;
  std::span<const TensorView> inputs() const override;
  std::span<const TensorView> outputs() const override;
  std::span<const TensorView> output_gradients() const override;
  std::span<const TensorView> input_gradients() const override;
  std::span<std::byte> graph() const override;
  void contribute(int weight, const std::byte* gradient, DType dtype) override;
  void contribute_part(int weight, int64_t first, const GradientView& part) override;
  std::span<float> open_gradient(int weight) override;
  double loss_scale() const override;
  void report_loss(const double* loss) override;

 private:
  friend class Engine;
  struct State;
  explicit Use(State* state);
  State& state() const;

  State* state_;
  int64_t number_;  // of the turns that the engine has had
};

// Runs one turn. What it throws ends the step (abort_step) and passes through train_step.
using Compute = std::function<void(Use&)>;

// What became of the updates that a step ran in its backward (UpdateMode).
enum class Speculated : uint8_t {
  kNone,   // there were none
  kRight,  // the scale was as predicted
  kWrong,  // they are undone, and done again with the true scale beside the next forward
};
std::string_view name_of(Speculated speculated);  // "none", "right", "wrong"

struct StepEnd {
  int64_t step = 0;                           // 1 for the first
  double loss = 0;                            // the mean of the micro-batches' (VisitTurn::report_loss)
  double grad_norm = 0;                       // before clipping
  double loss_scale = 1;                      // that this step's gradients had
  bool skipped = false;                       // non-finite norm: nothing is updated
  Speculated speculated = Speculated::kNone;  // kWrong too where the step therefore ran again, with the scale known
  // UpdateMode::kReplay only: the clip engaged, so that the step is to be run once more, with the same learning rate
  // and the same turns; it has not ended. train_step() does it by itself.
  bool run_again = false;
};

enum class ProbeIo : uint8_t { kNo, kYes };

struct Replay {
  double ms = 0;
  StepLanes lanes;
  bool updates_early = false;  // as the step does that would have come next
};

enum class OpenMode : uint8_t {
  kCreate,     // refused where a store is there
  kOverwrite,  // replaces what is there
  kResume,     // opens what is committed; starts from the beginning, and says so, where no step is
  kOpen,       // opens what is committed; refused, and left as it is, where nothing is
};

struct EngineOptions {
  PlanOptions plan;
  // Of the engine's model. Taken where it was asked of the very options that `plan` comes to with the store's folders
  // and chunks; else a plan is made.
  std::optional<MadePlan> made_plan;
  OpenMode open = OpenMode::kCreate;
  StoreOptions store;  // folder, queue
  // Where the store's backend is kAuto: the backend and, unless the store's block_bytes is said to stay, the size of
  // requests that are fastest here are found by trying them for two seconds or as long as the first pass takes: by the
  // library's own queues, so this is not for a make_queue of one's own. Changes no bits.
  ProbeIo probe_io = ProbeIo::kNo;
  enum class Block : uint8_t { kProbed, kStays } block = Block::kProbed;
  AdamOptions adam;                    // of parameters in none of the groups
  std::vector<ParameterGroup> groups;  // may change from run to run
  double max_norm = 0;                 // gradient clipping; 0: none
  LossScaleOptions loss_scale;
  int update_threads = 0;                 // 0: one a physical core
  DeviceKind device = DeviceKind::kHost;  // whose memory compute is given addresses of
  // The machine; tests give others.
  std::function<std::unique_ptr<Topology>()> make_topology = [] { return sluice::make_topology(); };
  std::function<int(DeviceKind)> node_near_device = sluice::node_near_device;
  std::function<std::unique_ptr<Device>(DeviceKind, int64_t, AdamKernel)> make_device = sluice::make_device;
  std::function<std::unique_ptr<UpdateTeam>(const Topology&, int)> make_team = sluice::make_update_team;
  std::string trace_path;  // empty: none
  // Of a store that is opened: the step to go on from, its last committed one or the one before where that is still
  // whole. The later one is given up for good.
  std::optional<int64_t> from_step;
  // Of a store that is opened. kAllFirst: every record is read and verified before a step begins: so bytes that a drive
  // has changed are found while the step before can still be gone back to, which the first step's writes would end.
  // kAsUsed: each as it is used.
  enum class Verify : uint8_t { kAsUsed, kAllFirst } verify = Verify::kAsUsed;
  // Called with what a store that is opened has committed, before anything in it changes. What it throws refuses it.
  std::function<void(const StepState&)> accept_store;
  // Called when a store has taken the place of whatever was there, before its first commit.
  std::function<void()> on_new_store;
  // Called while the store is created, or a step in it read whole: how much of how much. What it throws ends that.
  std::function<void(int64_t, int64_t)> progress;
  Log log;
};

class Engine {
 public:
  // Creates or opens the store, takes the arenas. Throws ConfigError (model, budgets, store of another model, a store
  // that is there and neither resume nor overwrite), IoError, CorruptionError, DeviceError.
  Engine(ModelSpec model, EngineOptions options, ParameterSource source);
  ~Engine();  // does not commit: call drain()

  const Plan& plan() const;
  const Geometry& geometry() const;
  const StepState& committed() const;      // between steps: what a crash now would leave, or a newer step
  int64_t step() const;                    // steps ended so far, resumed ones included
  int64_t applied_steps() const;           // of them those that were not skipped
  std::span<std::byte> workspace() const;  // the device arena's part for the compute's own temporaries
  void* compute_stream() const;            // Device::compute_stream(): where turns compute

  // One whole step: forward and backward of every micro-batch, clip; `learning_rate` is what the update will use. On
  // several NUMA nodes the calling thread runs on the one nearest to the GPU until this returns, and threads that it
  // starts meanwhile for good, unless the caller has placed it (near_device.h); so in evaluate() and replay().
  //
  // This and what follows throws IoError, CorruptionError (a record that is not what was written), DeviceError and
  // NumericsError (an update that gives a value that is not finite, ten steps in a row without a finite gradient, a
  // replayed step that comes out otherwise): the engine is then spent, every later call throws the same, and the store
  // opens at its last commit. What `compute` throws comes out too, and ends the step alone (abort_step).
  StepEnd train_step(double learning_rate, const Compute& compute);
  // Forward of `micro_batches` at most plan().options.micro_batches; returns the mean reported loss.
  double evaluate(int micro_batches, const Compute& compute);

  // The same, driven by somebody else's loop: begin_step, then enter() for each visit and micro-batch in layer-major
  // order (forward: visits first to last, sinks left out; backward: last to first), then finish_step(). The thread runs
  // where its owner lets it.
  void begin_step(double learning_rate);
  Use enter(int visit, Pass pass);  // the next micro-batch of this visit; another order throws, naming both visits
  StepEnd finish_step();            // StepEnd::run_again: see there
  // After an exception: the step never happened, nor did one that is to run again; the one before it is committed.
  void abort_step();

  // The samples consumed and the embedder's own bytes (PlanOptions::progress_bytes at most) go with the commit of the
  // step that has just ended or, where that is over, with the next commit: drain() makes one.
  void set_progress(int64_t data_position, std::span<const std::byte> caller);
  // Runs one resource's hops of a step in the middle of training, and nothing else: its own time. Drains first. For
  // benchmarks: steps go on afterwards, but their numbers are no training's any more.
  Replay replay(LaneGroup group, const Compute& compute);

  // Between steps: the one that has ended is committed beside the next, as are those at the end of an interval. Nothing
  // where it is committed already.
  void commit_beside_next_step();
  // Applies what is pending and commits. Call at the end, before an export, and on a signal.
  void drain();

  // Before the first step of a store that this engine has made: the store's files go with the engine.
  void leave_no_store();

  // Between steps: the values of a parameter as of the last step (drains first).
  void read(int parameter, std::span<std::byte> into);                    // weights dtype
  void read_master(int parameter, int64_t first, std::span<float> into);  // fp32 master
  Digests digests();

  const StepLanes& last_lanes() const;  // of the last step, both times where it ran again
  // When each hop of the last unit (a step, an evaluation, a drain) began and ended, as a trace (core/trace.h); between
  // steps. Throws IoError.
  void write_timeline(const std::string& path) const;
  // Ends the trace of the run (EngineOptions::trace_path), between steps. Throws IoError if anything of it could not be
  // written, which harms no step.
  void close_trace();
  const Ledger& ledger() const;
  // To the drives since this opened the store, padding and tables included. Between steps.
  int64_t written_bytes() const;
  std::vector<std::string> describe() const;  // backend, topology, kernel: lines for the log

 private:
  friend class Use;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
