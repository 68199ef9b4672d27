// How an engine comes to be: plan, programs, arenas, store, threads; refusals before anything is touched.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/errors.h"
#include "engine/engine_impl.h"
#include "engine/store_identity.h"
#include "engine/update_nodes.h"
#include "swap/io_probe.h"

namespace sluice {
namespace {

bool goes_on(OpenMode mode) { return mode == OpenMode::kResume || mode == OpenMode::kOpen; }

// A store that is there decides the chunk size where the configuration does not.
PlanOptions plan_for_store(const EngineOptions& options) {
  PlanOptions plan = options.plan;
  plan.optimizer = optimizer_of(options.adam.kind);
  plan.drives = static_cast<int>(options.store.folders().size());
  plan.own_device_bytes = own_device_bytes(options.device);
  if (!goes_on(options.open) || plan.chunk_elements > 0) return plan;
  if (const auto identity = RecordStore::identify(options.store.folder)) plan.chunk_elements = identity->chunk_elements;
  return plan;
}

Plan plan_of(const ModelSpec& model, EngineOptions& options) {
  const PlanOptions asked = plan_for_store(options);
  std::optional<MadePlan> made = std::exchange(options.made_plan, std::nullopt);
  if (made && made->asked == asked) return std::move(made->plan);
  if (made) say(options.log, LogLevel::kInfo, "a plan is made anew: the one at hand was asked of other options");
  return make_plan(model, asked);
}

void refuse_existing(const EngineOptions& options) {
  if (options.open != OpenMode::kCreate || find_store(options.store.folders()) == StoreExists::kNo) return;
  throw ConfigError(fmt::format("{}: a store is there already: {}, or {}", options.store.folder.string(),
                                options.store.words->go_on, options.store.words->start_over));
}

[[noreturn]] void refuse_empty(const StoreOptions& store) {
  throw ConfigError(fmt::format(
      "{}: the store has no committed step: its creation was cut off, or it was cut short or damaged since; "
      "bring the file back, or {}",
      store.folder.string(), store.words->start_over));
}

bool all_drives_are_there(const StoreOptions& options) {
  return std::ranges::all_of(
      options.folders(), [](const std::filesystem::path& folder) { return find_store(folder) == StoreExists::kYes; });
}

// Whoever made the store had more to keep.
void check_progress(const RecordStore& store, int64_t progress_bytes) {
  const int64_t kept = store.read_caller_bytes();
  if (kept <= progress_bytes) return;
  throw ConfigError(
      fmt::format("{}: one of its last commits carries {} bytes of progress, this run makes room for {}: give "
                  "PlanOptions::progress_bytes of {} or more",
                  store.path().string(), kept, progress_bytes, kept));
}

// The model, once all has been refused that can be before anything is planned or taken.
ModelSpec checked(ModelSpec model, const EngineOptions& options) {
  model.validate();
  options.loss_scale.validate();
  refuse_existing(options);
  return model;
}

}  // namespace

Engine::Impl::Impl(ModelSpec model_spec, EngineOptions engine_options, const ParameterSource& source)
    : model(checked(std::move(model_spec), engine_options)),
      options(std::move(engine_options)),
      uses(model),
      topology(options.make_topology()),
      near(*topology, node_near_device()),
      plan(plan_of(model, options)),
      groups(plan.geometry, options.adam, options.groups),
      order_steps(static_cast<size_t>(groups.count())),
      early_steps(order_steps) {
  build_units();
  charge_ledger();
  make_host_arena(near.node());
  const NearDevice::Stay staying(near);  // and the threads started here: they serve the device and the store
  device = options.make_device(options.device, plan.device_arena_bytes, adam_simd(plan.options.adam_format()));
  device->register_host(host.span());
  std::unique_ptr<TraceWriter> trace;  // a file that cannot be written is refused before a store is made
  if (!options.trace_path.empty()) trace = std::make_unique<TraceWriter>(options.trace_path, options.log);
  changed.assign(plan.chunks.size(), {Flag::kNo, Flag::kNo});
  // What has threads may be refused them: before a store is replaced.
  team = options.make_team(*topology, options.update_threads);
  size_t longest = 0;
  for (const UnitProgram& each : units) longest = std::max(longest, each.program.hops().size());
  executor = std::make_unique<Executor>(Executor::Parts{.device = device.get(),
                                                        .host = &host,
                                                        .work = this,
                                                        .trace = std::move(trace),
                                                        .update_hops = kUpdateHopsPerThread * team->threads(),
                                                        .max_hops = static_cast<int>(longest)});
  open_store(source);
  executor->set_store(*store);
  reserve_scratch();
  if (store->openable_steps().empty()) commit_now(*store, captured);  // a new one, which stays from here on
}

void Engine::Impl::build_units() {
  const auto build = [this](Slots where) {
    for (const UnitKind kind : unit_kinds(plan)) unit_of(kind, where) = build_unit(model, plan, kind);
  };
  build(Slots::kFirst);
  if (plan.other_slots.empty()) return;
  plan.move_to_other_slots();
  build(Slots::kOther);
  plan.move_to_other_slots();
}

// -1: none, or there is one node alone.
int Engine::Impl::node_near_device() const {
  return topology->node_count() > 1 ? topology->node_of_system(options.node_near_device(options.device)) : -1;
}

void Engine::Impl::charge_ledger() {
  ledger.set_budget(Tier::kDevice, plan.options.device_bytes);
  ledger.set_budget(Tier::kHost, plan.options.host_bytes);
  for (const UseRow& row : plan.uses) ledger.charge(row.tier, row.use, row.bytes);
}

// On a machine of several NUMA nodes what an update touches lies with the threads that run it, all else near the
// device.
void Engine::Impl::make_host_arena(int near_device) {
  const std::vector<TeamGroup> teams = team_groups(*topology, options.update_threads);
  if (teams.size() == 1 && near_device < 0) {
    host = Arena(plan.host_arena_bytes);
    return;
  }
  const UpdateNodes nodes(update_ranges(plan, units), teams);
  for (UnitProgram& unit_program : units) {
    for (UpdateOperands& update : unit_program.updates) {
      if (update.place == Place::kHost) update.group = nodes.group_at(update.state);
    }
  }
  host = Arena(plan.host_arena_bytes, [&](std::span<std::byte> mapping) {
    const auto bind = [&](int group, int node) {
      for (const HostRange& pages : nodes.pages_of(group, plan.host_arena_bytes)) {
        topology->bind_memory(mapping.subspan(static_cast<size_t>(pages.offset), static_cast<size_t>(pages.bytes)),
                              node);
      }
    };
    for (size_t group = 0; group < teams.size(); ++group) bind(static_cast<int>(group), teams[group].node);
    if (near_device >= 0) bind(UpdateTeam::kAnyGroup, near_device);
  });
}

// Whether the step to go back to is there, where one is asked for.
void Engine::Impl::check_from_step(const RecordStore* found) const {
  if (!options.from_step) return;
  const std::vector<int64_t> steps = found != nullptr ? found->openable_steps() : std::vector<int64_t>();
  if (std::ranges::find(steps, *options.from_step) != steps.end()) return;
  throw ConfigError(fmt::format("{}: there is no step {} to go on from; what is committed there: {}",
                                options.store.folder.string(), *options.from_step,
                                steps.empty() ? "nothing" : fmt::format("step {}", fmt::join(steps, ", and step "))));
}

// The host arena is still empty: it is the memory that the store will use, and already counted.
void Engine::Impl::probe(StoreOptions& store_options) const {
  constexpr int64_t kMostBytes = 64 * kMiB;  // for each drive
  const int64_t memory_bytes = kMostBytes * static_cast<int64_t>(store_options.folders().size());
  const std::span<std::byte> memory = host.span().first(static_cast<size_t>(std::min(host.bytes(), memory_bytes)));
  // A small store is not worth many bytes, and a drive may have little room left.
  const int64_t worth_bytes = std::min(round_up(plan.disk_bytes, kMiB), kMostBytes);
  IoProbeOptions probe{.folders = store_options.folders(), .memory = memory, .words = store_options.words};
  probe.scratch_bytes = std::max(scratch_bytes_in(probe.folders, worth_bytes), kMiB);
  std::vector<int64_t> blocks = {store_options.block_bytes};
  if (options.block == EngineOptions::Block::kProbed) blocks = {kMiB, 256 * kKiB, 4 * kMiB};
  for (const IoBackend backend : {IoBackend::kUring, IoBackend::kThreads}) {
    for (const int64_t block : blocks) {
      if (block * static_cast<int64_t>(probe.folders.size()) <= static_cast<int64_t>(memory.size()))
        probe.candidates.push_back({.backend = backend, .block_bytes = block, .depth = plan.options.io_depth});
    }
  }
  if (probe.candidates.empty()) return;
  try {
    const IoProbe found = probe_io(probe);
    const IoTrial& best = found.trials[found.best];
    // kAuto stays where io_uring is best or cannot be had: the store's queue then says why.
    const auto by_uring = [](const IoTrial& trial) { return trial.settings.backend == IoBackend::kUring; };
    if (!by_uring(best) && std::ranges::any_of(found.trials, by_uring))
      store_options.queue.backend = IoBackend::kThreads;
    store_options.block_bytes = best.settings.block_bytes;
    say(options.log, LogLevel::kInfo,
        fmt::format("I/O, the best of {} settings tried: {}", found.trials.size(), sluice::describe(best)));
  } catch (const IoError& error) {
    say(options.log, LogLevel::kWarning, fmt::format("I/O settings are not probed: {}", error.what()));
  }
}

void Engine::Impl::open_store(const ParameterSource& source) {
  StoreOptions store_options = options.store;
  store_options.scratch_bytes = plan.scratch_bytes;
  store_options.caller_bytes = plan.options.progress_bytes;
  store_options.queue.memory = {host.span()};
  store_options.queue.depth = plan.options.io_depth;
  store_options.queue.log = options.log;
  store_options.log = options.log;
  store_options.progress = options.progress;
  store_options.accept = [this](const RecordStore& found) {
    check_progress(found, plan.options.progress_bytes);
    check_from_step(&found);
    if (options.accept_store) options.accept_store(found.committed());
  };
  if (options.from_step) store_options.unread = StoreOptions::Unread::kPassedOver;
  const StoreIdentity identity = store_identity(model, plan.options, plan.geometry);
  const bool opens = goes_on(options.open) && find_store(store_options.folders()) == StoreExists::kYes;
  const bool probes = options.probe_io == ProbeIo::kYes && store_options.queue.backend == IoBackend::kAuto;
  // Opening refuses a store without one of its drives, whose folder may be another drive's now.
  if (probes && (!opens || all_drives_are_there(store_options))) probe(store_options);
  if (opens) store = RecordStore::open(plan.geometry, identity, store_options);
  if (options.open == OpenMode::kOpen && !store) refuse_empty(store_options);
  check_from_step(store.get());  // of one to which nothing was ever committed
  if (options.open == OpenMode::kResume && (!store || store->committed().step == 0)) {
    store.reset();  // initial values may be of another seed: whoever wrote them never came to a step
    say(options.log, LogLevel::kWarning,
        fmt::format("{}: nothing committed to resume from; starting from the beginning",
                    store_options.folder.string()));
  } else if (options.from_step) {
    store->open_step(*options.from_step);
  }
  const bool opened = store != nullptr;
  if (!opened) {
    if (options.open == OpenMode::kCreate) store_options.existing = StoreOptions::Existing::kRefused;
    store = RecordStore::create(plan.geometry, identity, store_options);
    if (options.on_new_store) options.on_new_store();
  }
  update_pass = std::make_unique<UpdatePass>(UpdatePass::Parts{
      .model = model, .plan = plan, .groups = groups, .store = *store, .device = *device, .host = host.at(0)});
  access = std::make_unique<RecordAccess>(plan, *store, *update_pass, host.at(0));
  if (opened) {
    access->load();
    if (options.verify == EngineOptions::Verify::kAllFirst) access->verify_rest(options.progress);
    captured = store->committed();
    begin_loss_scale(options.loss_scale, captured);
  } else {
    begin_loss_scale(options.loss_scale, captured);
    access->create(source, options.progress);
  }
}

// Everything that a step writes into, at its largest.
void Engine::Impl::reserve_scratch() {
  size_t weights = 0, tensors = 0;
  for (const VisitSpec& visit : model.visits) {
    size_t parameters = 0;
    for (int p : visit.partitions) parameters += plan.geometry.parameters_of(p).size();
    weights = std::max(weights, parameters);
    tensors = std::max({tensors, visit.takes.size(), visit.gives.size()});
  }
  use.weights.reserve(weights);
  use.open.reserve(weights);
  use.input_sums.reserve(tensors);
  use.output_sums.reserve(tensors);
  for (auto* list : {&use.inputs, &use.outputs, &use.output_gradients, &use.input_gradients}) list->reserve(tensors);
  open_gradients = OpenGradients(plan.geometry.parameters().size());
  norm_parts.assign(plan.geometry.parameters().size(), 0);
  int most_chunks = 0;
  for (const Partition& partition : plan.geometry.partitions())
    most_chunks = std::max(most_chunks, partition.chunk_count);
  pieces.reserve(most_chunks + 1);
  SLUICE_CHECK(store->table_bytes() <= RecordStore::predicted_table_bytes(table_needs(plan)),
               "the store's table outgrew what was planned for it");
}

}  // namespace sluice
