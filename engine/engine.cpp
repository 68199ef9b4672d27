#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.h"
#include "engine/engine_impl.h"
#include "swap/store_format.h"

namespace sluice {

std::string_view name_of(Speculated speculated) {
  constexpr std::string_view kNames[] = {"none", "right", "wrong"};
  return kNames[static_cast<int>(speculated)];
}

// --- units -----------------------------------------------------------------------------------------------------------

void Engine::Impl::ready() const {
  if (spent) std::rethrow_exception(spent);
  check_between_steps();
}

void Engine::Impl::check_between_steps() const {
  SLUICE_CHECK(running.under_way == Flag::kNo, "a step is under way: finish_step() or abort_step() first");
}

void Engine::Impl::choose(UnitKind kind) {
  access->forget();
  const int64_t step = kind == UnitKind::kEvaluate ? -1 : captured.step + (kind == UnitKind::kDrain ? 0 : 1);
  running = {.kind = kind, .unit = &unit_of(kind, slots), .step = step};
  aborted = Flag::kNo;
  open_gradients.empty();
}

void Engine::Impl::begin(UnitKind kind) {
  ready();
  if (kind == UnitKind::kDrain || kind == UnitKind::kEvaluate) known_scale.reset();  // a step that was to run again
  choose(kind);
  order_updates();
  running.under_way = Flag::kYes;
  executor->begin(running.unit->program);
}

// Not Errors alone: memory that cannot be had, or a check that fails on another thread, leave the step half done too.
const UnitTimes& Engine::Impl::finish_unit() {
  try {
    return executor->finish();
  } catch (...) {
    spend();
    throw;
  }
}

// Remembers the error. Where it is the caller's, a unit is still under way: it ends first, so that nothing of it reads
// or writes what others may ask for from now on.
void Engine::Impl::spend() noexcept {
  spent = std::current_exception();
  if (running.under_way == Flag::kNo) return;
  aborted = Flag::kYes;
  use.operands = nullptr;
  executor->abandon();
  try {
    executor->finish();
  } catch (...) {  // the unit's own, or what came of the first
  }
  running.under_way = Flag::kNo;
}

// What updates and commit of this unit do: those of the step before, and those that its own backward runs early.
void Engine::Impl::order_updates() {
  const bool due = running.kind == UnitKind::kDrain || captured.step % plan.commit_interval == 0 ||
                   between.commit_asked_for == Flag::kYes;
  running.order = {
      .update = between.pending ? UpdateOrder::Update::kPending : UpdateOrder::Update::kNone,
      .commit = between.unsaved == Flag::kYes && due ? UpdateOrder::Commit::kDue : UpdateOrder::Commit::kNotDue,
      .steps = order_steps};
  if (const auto& owed = between.pending) {
    groups.fill_steps({.learning_rate = owed->learning_rate, .t = captured.applied_steps, .scale = owed->scale},
                      order_steps);
  }
  if (!updates_early(running.kind)) return;
  running.predicted_scale = known_scale.value_or(1 / captured.loss_scale);
  groups.fill_steps({.learning_rate = learning_rate, .t = captured.applied_steps + 1, .scale = running.predicted_scale},
                    early_steps);
  running.early = early_order(early_steps);
}

// With a commit in every step early updates write what it will name; with rarer ones they leave what they read.
UpdateOrder Engine::Impl::early_order(std::span<const AdamStep> steps) const {
  UpdateOrder updates{.update = UpdateOrder::Update::kPending, .commit = UpdateOrder::Commit::kDue, .steps = steps};
  if (plan.other_slots.empty()) return updates;
  updates.commit = UpdateOrder::Commit::kNotDue;
  updates.to = UpdateOrder::To::kOtherSlot;
  return updates;
}

UnitKind Engine::Impl::training_kind() const {
  const bool chosen =
      plan.options.update != UpdateMode::kAuto || speculation.next() == Speculation::Choice::kSpeculative;
  if (!plan.any_speculated() || !chosen) return UnitKind::kTrain;
  const bool anew =
      between.speculated == Speculated::kWrong || (between.pending && between.speculated == Speculated::kNone);
  return anew ? UnitKind::kTrainSpeculativeAnew : UnitKind::kTrainSpeculative;
}

void Engine::Impl::begin_step(double with_learning_rate) {
  ready();
  learning_rate = with_learning_rate;
  begin(training_kind());
}

// After the executor's last hop: what the unit has made true.
void Engine::Impl::end_unit() {
  running.under_way = Flag::kNo;
  const UnitKind kind = running.kind;
  const Speculated speculated = updates_early(kind) ? settle_speculation() : Speculated::kNone;
  const bool committed = running.order.commit == UpdateOrder::Commit::kDue;
  // Visits bring what is kept on the device up to date; a drain has none, and its updates leave that behind.
  const Flag kept_after_drain = between.pending ? Flag::kNo : between.kept_valid;
  between = {.pending = std::nullopt,
             .speculated = speculated,
             .prefetched = half_prefetched(kind),
             .kept_valid = kind == UnitKind::kDrain ? kept_after_drain : Flag::kYes,
             .on_device = Flag::kYes,
             .unsaved = committed ? Flag::kNo : between.unsaved,
             .commit_asked_for = committed ? Flag::kNo : between.commit_asked_for};
}

// Were the updates in this unit's backward those that its scale asks for? If not, their records are given up.
Speculated Engine::Impl::settle_speculation() {
  const ClipResult& clipped = running.clipped;
  if (aborted == Flag::kNo && clipped.finite && clipped.scale == running.predicted_scale && !running.early_failure) {
    move_to_other_slots();
    return Speculated::kRight;
  }
  for (int c = 0; c < static_cast<int>(plan.chunks.size()); ++c) {
    if (!plan.speculated(c) || plan.has_other_slot(c)) continue;
    for (Group group : {Group::kWeights, Group::kState}) store->discard({static_cast<uint32_t>(c), group});
  }
  return Speculated::kWrong;
}

// What this unit's backward has updated there is what the records are from now on.
void Engine::Impl::move_to_other_slots() {
  if (plan.other_slots.empty()) return;
  plan.move_to_other_slots();
  slots = slots == Slots::kFirst ? Slots::kOther : Slots::kFirst;
  for (int c = 0; c < std::ssize(plan.chunks); ++c) {
    if (plan.has_other_slot(c)) note_changed(c);
  }
}

Use Engine::Impl::enter(int visit, Pass pass) {
  if (spent) std::rethrow_exception(spent);
  SLUICE_CHECK(running.under_way == Flag::kYes, "enter() outside of a step");
  SLUICE_CHECK(use.operands == nullptr, "a turn is under way: let its Use go first");
  return guarded([&] {
    run_control_hops();
    const auto lane = running.unit->program.lane(Lane::kCompute);
    SLUICE_CHECK(running.next_compute < lane.size(), "all visits of this step have had their turns");
    const int hop = lane[running.next_compute];
    const ComputeOperands& next = running.unit->turns[running.unit->program.hops()[hop].operands];
    if (next.visit != visit || next.pass != pass) {
      check_failed("order", __FILE__, __LINE__,
                   fmt::format("{} of visit {} was entered where {} of visit {} comes next", name_of(pass),
                               model.visits.at(visit).name, name_of(next.pass), model.visits[next.visit].name));
    }
    executor->enter(hop);
    ++running.next_compute;
    fill_use(hop, next, pass);
    if (pass == Pass::kBackward) round_shared_gradients();
    return Use(&use);
  });
}

void Engine::Impl::leave(int64_t number) noexcept {
  if (use.operands == nullptr || use.number != number) return;  // its step was given up meanwhile
  try {
    if (use.pass == Pass::kBackward) add_shared_contributions();
    use.operands = nullptr;
    executor->leave(use.hop);
  } catch (...) {  // of the device; the next call throws it
    spend();
  }
}

StepEnd Engine::Impl::finish_step() {
  if (spent) std::rethrow_exception(spent);
  const bool training = running.kind == UnitKind::kTrain || updates_early(running.kind);
  SLUICE_CHECK(running.under_way == Flag::kYes && training, "finish_step() outside of a step");
  SLUICE_CHECK(use.operands == nullptr, "a turn is under way: let its Use go first");
  return guarded([&] {
    run_control_hops();
    SLUICE_CHECK(running.next_compute == running.unit->program.lane(Lane::kCompute).size(),
                 "some visits have not had their turns");
    const StepLanes pass = lanes_of(finish_unit());
    if (!known_scale) lanes = {};
    lanes += pass;  // of a step that runs again: to those of its first run
    end_unit();
    if (must_run_again()) {
      known_scale = running.clipped.scale;
      StepEnd first_run = measured_step();
      first_run.speculated = between.speculated;
      first_run.run_again = true;
      return first_run;
    }
    return end_step();
  });
}

// Under replay no gradient is left: a wrong prediction means that the step runs again, with the scale now known.
bool Engine::Impl::must_run_again() {
  const ClipResult& clipped = running.clipped;
  if (plan.options.update != UpdateMode::kReplay || between.speculated != Speculated::kWrong || !clipped.finite)
    return false;
  // With the true scale, and not finite.
  if (clipped.scale == running.predicted_scale) std::rethrow_exception(running.early_failure);
  if (known_scale) {
    throw NumericsError(fmt::format(
        "step {} ran again and its gradients were other than before (norm {}): compute must give the same bits for the "
        "same turns under sluice.update \"replay\"; use \"deferred\"",
        captured.step + 1, clipped.norm));
  }
  return true;
}

// Of the step that is to end, or to run again.
StepEnd Engine::Impl::measured_step() const {
  return {.step = captured.step + 1,
          .loss = running.loss_sum / plan.options.micro_batches,
          .grad_norm = running.clipped.norm,
          .loss_scale = captured.loss_scale};
}

StepEnd Engine::Impl::end_step() {
  const ClipResult& clipped = running.clipped;
  StepEnd end = measured_step();
  end.skipped = !clipped.finite;
  end.speculated = known_scale ? Speculated::kWrong : between.speculated;
  known_scale.reset();
  captured.step = end.step;
  captured.applied_steps += end.skipped ? 0 : 1;
  captured.skipped_steps += end.skipped ? 1 : 0;
  note_step(options.loss_scale, end.skipped ? StepWas::kSkipped : StepWas::kGood, captured);
  if (end.skipped) {
    std::string at;
    if (end.loss_scale != 1 || captured.loss_scale != 1)
      at = fmt::format(" at a loss scale of {:g}; the next one has {:g}", end.loss_scale, captured.loss_scale);
    say(options.log, LogLevel::kWarning, fmt::format("step {} is skipped: a gradient is not finite{}", end.step, at));
  }
  between.unsaved = Flag::kYes;
  if (!end.skipped) between.pending = {.scale = clipped.scale, .learning_rate = learning_rate};
  if (plan.any_speculated() && plan.options.update == UpdateMode::kAuto) {
    const bool plain = clipped.finite && clipped.scale == 1 / end.loss_scale;
    const auto line = speculation.note(end.step, plain ? Speculation::Scale::kAsPredicted : Speculation::Scale::kOther);
    if (line) say(options.log, LogLevel::kInfo, *line);
  }
  if (captured.skipped_in_a_row >= kMostSkipsInARow) report_non_finite();
  return end;
}

void Engine::Impl::report_non_finite() const {
  std::string block = "?";
  for (int parameter : plan.geometry.canonical()) {
    if (std::isfinite(norm_parts[parameter])) continue;
    block = fmt::format("{} (parameter {})", model.partitions[plan.geometry.parameters()[parameter].partition].name,
                        plan.geometry.parameters()[parameter].name);
    break;
  }
  std::string scale, advice = "Lower the learning rate or look at the data of these steps";
  if (plan.options.precision == Precision::kFp16) {
    const bool is_static = options.loss_scale.kind == LossScaleOptions::Kind::kStatic;
    scale = fmt::format(" at a loss scale of {:g}, which is not lowered", captured.loss_scale);
    advice = fmt::format(
        "Where fp16 has no room for gradients that large (up to 65504), give a smaller fp16.{}; else lower the "
        "learning rate or look at the data of these steps",
        is_static ? "loss_scale" : "min_loss_scale");
  }
  throw NumericsError(fmt::format(
      "{} steps in a row had non-finite gradients{}, the last at step {}; the first block with one is {}. {}",
      captured.skipped_in_a_row, scale, captured.step, block, advice));
}

void Engine::Impl::abort_step() {
  if (spent) return;
  known_scale.reset();
  if (running.under_way == Flag::kNo) return;
  guarded([&] {
    aborted = Flag::kYes;
    executor->abandon();
    use.operands = nullptr;
    finish_unit();
    end_unit();
  });
}

void Engine::Impl::abort_in_handler() {
  try {
    abort_step();
  } catch (const std::exception& second) {
    say(options.log, LogLevel::kWarning, fmt::format("while the step was given up: {}", second.what()));
  }
}

double Engine::Impl::evaluate(int micro_batches, const Compute& compute) {
  const NearDevice::Stay staying(near);
  SLUICE_CHECK(micro_batches >= 1 && micro_batches <= plan.options.micro_batches,
               "more micro-batches than planned for");
  begin(UnitKind::kEvaluate);
  try {
    for (int visit = 0; visit < static_cast<int>(model.visits.size()); ++visit) {
      for (int m = 0; m < plan.options.micro_batches; ++m) {
        Use turn = enter(visit, Pass::kEvaluate);
        if (m < micro_batches) compute(turn);
      }
    }
  } catch (...) {
    abort_in_handler();
    throw;
  }
  return guarded([&] {
    finish_unit();
    end_unit();
    return running.loss_sum / micro_batches;
  });
}

void Engine::Impl::drain() {
  ready();
  if (between.pending || between.unsaved == Flag::kYes || between.speculated == Speculated::kWrong) {
    begin(UnitKind::kDrain);
    guarded([&] {
      finish_unit();
      end_unit();
    });
  }
  between.prefetched.reset();
}

void Engine::Impl::set_progress(int64_t data_position, std::span<const std::byte> caller) {
  ready();
  SLUICE_CHECK(static_cast<int64_t>(caller.size()) <= plan.options.progress_bytes,
               "progress carries PlanOptions::progress_bytes at most");
  if (captured.data_position == data_position && std::ranges::equal(captured.caller, caller)) return;
  captured.data_position = data_position;
  captured.caller.assign(caller.begin(), caller.end());
  between.unsaved = Flag::kYes;
}

// --- the public face -------------------------------------------------------------------------------------------------

Engine::Engine(ModelSpec model, EngineOptions options, ParameterSource source)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options), source)) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const { return impl_->plan; }
const Geometry& Engine::geometry() const { return impl_->plan.geometry; }
const StepState& Engine::committed() const {
  impl_->check_between_steps();
  return impl_->store->committed();
}
int64_t Engine::step() const { return impl_->captured.step; }
int64_t Engine::applied_steps() const { return impl_->captured.applied_steps; }
std::span<std::byte> Engine::workspace() const {
  return {impl_->device->memory() + impl_->plan.workspace_offset,
          static_cast<size_t>(impl_->plan.options.workspace_bytes)};
}
void* Engine::compute_stream() const { return impl_->device->compute_stream(); }

StepEnd Engine::train_step(double learning_rate, const Compute& compute) {
  const NearDevice::Stay staying(impl_->near);
  const int last = static_cast<int>(impl_->model.visits.size()) - 1;
  const auto run_visit = [&](int visit, Pass pass) {
    for (int m = 0; m < impl_->plan.options.micro_batches; ++m) {
      Use use = enter(visit, pass);
      compute(use);
    }
  };
  for (;;) {
    begin_step(learning_rate);
    try {
      for (int visit = 0; visit < last; ++visit) run_visit(visit, Pass::kForward);
      for (int visit = last; visit >= 0; --visit) run_visit(visit, Pass::kBackward);
    } catch (...) {
      impl_->abort_in_handler();
      throw;
    }
    const StepEnd end = finish_step();
    if (!end.run_again) return end;
  }
}

double Engine::evaluate(int micro_batches, const Compute& compute) { return impl_->evaluate(micro_batches, compute); }

void Engine::begin_step(double learning_rate) { impl_->begin_step(learning_rate); }
Use Engine::enter(int visit, Pass pass) { return impl_->enter(visit, pass); }
StepEnd Engine::finish_step() { return impl_->finish_step(); }
void Engine::abort_step() { impl_->abort_step(); }
void Engine::commit_beside_next_step() {
  impl_->ready();
  impl_->between.commit_asked_for = impl_->between.unsaved;
}
void Engine::drain() { impl_->drain(); }
void Engine::leave_no_store() { impl_->store->leave_no_files(); }
Replay Engine::replay(LaneGroup resource, const Compute& compute) { return impl_->replay(resource, compute); }

void Engine::set_progress(int64_t data_position, std::span<const std::byte> caller) {
  impl_->set_progress(data_position, caller);
}

void Engine::read(int parameter, std::span<std::byte> into) {
  impl_->drain();
  impl_->guarded([&] { impl_->access->read(parameter, into); });
}
void Engine::read_master(int parameter, int64_t first, std::span<float> into) {
  impl_->drain();
  impl_->guarded([&] { impl_->access->read_master(parameter, first, into); });
}
Digests Engine::digests() {
  impl_->drain();
  return impl_->guarded([&] { return impl_->access->digests(); });
}

const StepLanes& Engine::last_lanes() const { return impl_->lanes; }
int64_t Engine::written_bytes() const {
  impl_->check_between_steps();
  return impl_->store->written_bytes();
}
void Engine::write_timeline(const std::string& path) const {
  impl_->check_between_steps();
  TraceWriter trace(path);
  Executor::name_rows(trace);
  impl_->executor->write_trace(trace);
  trace.close();
}
void Engine::close_trace() { impl_->executor->close_trace(); }
const Ledger& Engine::ledger() const { return impl_->ledger; }
std::vector<std::string> Engine::describe() const {
  return {impl_->store->describe(), impl_->device->describe(), impl_->topology->describe(), impl_->team->describe(),
          fmt::format("adam kernel {}", adam_simd_targets().front())};
}

}  // namespace sluice
