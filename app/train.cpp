#include "app/train.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <future>
#include <random>

#include "app/batches.h"
#include "app/carried.h"
#include "app/endurance.h"
#include "app/folders_of_run.h"
#include "app/free_space.h"
#include "app/machine_file.h"
#include "app/metrics.h"
#include "app/opening.h"
#include "app/report.h"
#include "app/sample.h"
#include "app/setup.h"
#include "app/signals.h"
#include "app/speeds.h"
#include "app/step_loop.h"
#include "app/step_predictions.h"
#include "app/tokenizer_files.h"
#include "app/what_if.h"
#include "data/dataset.h"
#include "data/sample_order.h"
#include "data/token_source.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Everything of a run that lives while it trains: what it begins with and ends with; its steps are StepLoop's. Members
// in dependency order.
class Training {
 public:
  Training(const TrainOptions& options, Console& console)
      : options_(options),
        console_(console),
        machine_(named_machine(options.machine)),
        opening_(open_folder(options, console.log())),
        setup_(set_it_up()) {}
  ~Training() { setup_.model.leave_memory(); }  // which is the engine's

  TrainEnd run() {
    make_the_plan();
    read_data();
    if (opening_.mode != OpenMode::kOpen) folders_.make_for_stores(opening_.stores(), console_.log());
    folders_.leave_signals_to(requests_.emplace());
    open_engine();
    const int signal = loop_->train(*requests_);
    requests_.reset();
    const TrainEnd end = finish(signal);
    engine_->close_trace();  // one that is incomplete is an error, but of a run that is committed
    return end;
  }

 private:
  RunSetup set_it_up();
  void make_the_plan();
  void lock_folder();
  void read_data();
  void prepare_to_go_back();
  EngineOptions options_of_engine();
  ParameterSource first_values();
  void open_engine();
  void take_back_store();
  void say_what_was_planned();
  void begin_records();
  void predict_steps();
  void keep_offers(const Prediction& present);
  void save_would_help(const std::string& json);
  TrainEnd finish(int signal);
  std::optional<Validation> validation_with(const Digests& digests);
  void print_sample();
  std::string endurance();

  const RunFolder& folder() const { return opening_.folder; }
  const BatchConfig& batch() const { return setup_.config.batch; }
  Carried carried() const { return Carried::of(data_->fingerprint(), setup_.device); }
  int64_t tokens_per_step() const { return batch().train * setup_.config.data.sequence_length; }

  const TrainOptions& options_;
  Console& console_;
  std::optional<MachineSpeeds> machine_;  // that --machine names
  Opening opening_;
  const uint32_t opener_ = std::random_device()() | 1;  // of the store; odd: 0 is nobody
  FoldersOfRun folders_;  // a run that is refused, or ended before its store is there, leaves none behind
  std::optional<StopRequests> requests_;  // from the store's making to the last step
  RunSetup setup_;
  std::optional<PlanOptions> plan_options_;
  std::optional<Dataset> data_;
  std::optional<SampleOrder> order_;
  std::vector<int32_t> sample_prompt_;  // empty: nothing is sampled at the end
  std::unique_ptr<Engine> engine_;
  std::shared_future<Plan> plan_;           // valid where speeds are known, until the engine has it
  std::future<std::vector<Offer>> offers_;  // valid where speeds are known; ends before what it reads
  StepPredictions predictions_{{}};
  bool is_new_store_ = false;  // this run has made it
  int64_t steps_ = 0;
  std::optional<StepLoop> loop_;  // once there is an engine, and the folder is this run's
};

RunSetup Training::set_it_up() {
  RunSetup setup = set_up(opening_.config, console_.log());
  validate(setup.config.data);
  if (opening_.cache == CacheUse::kIfUnchanged) check_is_there(setup.config.data);
  if (opening_.model_folder) {
    setup.section.folder = *opening_.model_folder;
    setup.config.model = model_section_text(setup.section);
  }
  if (opening_.before) {
    check_same_run(*opening_.before, setup.config, folder().path());
    say_what_changed(*opening_.before, setup.config, console_.log());
    warn_of_other_sums(*opening_.before, setup.config, console_.log());
  }
  if (!opening_.goes_on() || setup.config.sluice.chunk_elements > 0) return setup;
  // The chunks of a store stay as they were made, whatever the budgets of this run would give.
  if (const auto identity = RecordStore::identify(opening_.stores().front()))
    setup.config.sluice.chunk_elements = identity->chunk_elements;
  return setup;
}

void Training::make_the_plan() {
  say(console_.log(), LogLevel::kInfo,
      fmt::format("{} parameters; measuring the workspace of one micro-batch", setup_.model.parameter_count()));
  const std::vector<fs::path> stores = opening_.stores();
  warn_of_no_drives(stores, console_.log());
  const WorkspaceNeed workspace = find_workspace(setup_, console_.log());
  plan_options_ = plan_options(setup_, workspace.memory);
  say_what_planning_takes(setup_.model.spec(), *plan_options_, console_.log());
  const auto figures = opening_.goes_on() ? DriveFigures::kOfStoreThere : DriveFigures::kKept;
  const Plan in_order = make_plan(setup_.model.spec(), *plan_options_);  // throws where nothing fits
  if (!opening_.goes_on()) check_free_space(stores, drive_needs(in_order), StoreThere::kReplaced);
  plan_options_->speeds = find_speeds(
      setup_, workspace, {.machine = machine_, .folders = stores, .waiting_ms = {}, .drives = figures}, console_.log());
  if (!plan_options_->speeds) return;
  // For a large model these take seconds: while the text is read and the store is made, and no longer.
  constexpr auto kAtOnce = std::launch::async | std::launch::deferred;  // later where no thread can be had
  plan_ = std::async(kAtOnce, make_plan, std::cref(setup_.model.spec()), *plan_options_).share();
  offers_ = std::async(kAtOnce, [&model = setup_.model.spec(), options = *plan_options_, plan = plan_] {
    return what_would_help(model, options, plan.get());
  });
}

// Of a run that begins in a new folder: another one may have come and gone there since that was looked at.
void Training::lock_folder() {
  if (opening_.lock.is_held()) return;
  folders_.make(folder().path(), "give a folder that can be written with --out");
  opening_.lock = folder().lock();
  if (folder().holds() == RunFolder::Holds::kNothing) return;
  throw ConfigError(fmt::format("{}: another run has been begun there in this moment; give another folder with --out",
                                folder().path().string()));
}

void Training::read_data() {
  lock_folder();
  if (const std::string& events = setup_.config.tensorboard; !events.empty()) folders_.make(events, kEventsAdvice);
  data_ =
      Dataset::prepare({.data = setup_.config.data,
                        .cache_folder = folder().data_cache(),
                        .use = opening_.cache,
                        .reading = [&](int64_t done, int64_t total) { console_.progress(done, total, "reading text"); },
                        .progress = [&](int64_t done, int64_t total) { console_.progress(done, total, "tokenizing"); },
                        .log = console_.log()});
  console_.finish_progress();
  if (!opening_.before) warn_of_other_ids(setup_.section.folder, data_->tokenizer(), console_.log());
  if (!options_.sample.empty()) sample_prompt_ = prompt_ids(data_->tokenizer(), options_.sample);
  order_.emplace(SampleOrder::Options{.samples = data_->training_samples(),
                                      .batch_size = batch().train,
                                      .shuffle = setup_.config.data.shuffle,
                                      .seed = setup_.config.seed_or_default()});
  steps_ = options_.steps.value_or(order_->steps_per_epoch());
  say(console_.log(), LogLevel::kInfo,
      fmt::format("{} tokens by {}; {} samples of {} to train on, {} to validate on; {} steps an epoch",
                  data_->tokens(), data_->tokenizer().describe(), data_->training_samples(),
                  setup_.config.data.sequence_length, data_->validation_samples(), order_->steps_per_epoch()));
  warn_of_run(setup_.config, *data_, steps_, console_.log());
}

// The later step is given up as the store is opened: what could end the run just after that is looked at before.
void Training::prepare_to_go_back() {
  if (steps_ <= *options_.from_step) {
    throw ConfigError(fmt::format("--from-step {} with {} steps: nothing would be trained; give more --steps",
                                  *options_.from_step, steps_));
  }
  if (opening_.before) folder().save(*opening_.before);  // as it is: it can be written
}

EngineOptions Training::options_of_engine() {
  EngineOptions options = engine_options(setup_, *plan_options_, opening_.stores(), console_.log());
  if (plan_.valid()) options.made_plan = {*plan_options_, plan_.get()};
  options.open = opening_.mode;
  options.from_step = options_.from_step;
  options.probe_io = ProbeIo::kYes;
  options.store.make_queue = options_.make_queue;
  options.verify = EngineOptions::Verify::kAllFirst;
  options.progress = [&](int64_t done, int64_t total) {
    stop_where_asked(*requests_);
    console_.progress(done, total,
                      opening_.mode == OpenMode::kOpen ? "reading what is committed" : "creating the store");
  };
  options.accept_store = [this](const StepState& committed) {
    check_own_store(opening_, committed.step);
    check_carried(committed, carried(), folder(), console_.log());
    folder().claim_store(opening_.stores(), opener_);
  };
  options.store.opener = opener_;
  options.on_new_store = [this] {
    is_new_store_ = true;
    folder().forget();
  };
  return options;
}

// What a new store begins with.
ParameterSource Training::first_values() {
  if (opening_.mode == OpenMode::kOpen || setup_.section.folder.empty()) {
    return setup_.model.initial_values(setup_.config.seed_or_default());
  }
  ParameterSource source = hugging_face_source(setup_.section.folder, setup_.model, [&](int64_t done, int64_t total) {
    stop_where_asked(*requests_);
    console_.progress(done, total, "looking at the weights");
  });
  console_.finish_progress();
  return source;
}

// Whatever can refuse the run does so before the engine is there. What fails after that, until the run has its records,
// gives the store up.
void Training::open_engine() {
  EngineOptions options = options_of_engine();
  if (options_.from_step) prepare_to_go_back();
  engine_ = std::make_unique<Engine>(setup_.model.spec(), std::move(options), first_values());
  plan_ = {};  // it has its own
  try {
    stop_where_asked(*requests_);
    console_.finish_progress();
    data_->keep();
    setup_.model.use_memory(*engine_);
    say_what_was_planned();
    begin_records();
  } catch (...) {
    take_back_store();
    throw;
  }
}

// A run that cannot write its own files has not begun, and leaves no store that would be in the way of the next one.
void Training::take_back_store() {
  if (!is_new_store_) return;
  engine_->leave_no_store();
  try {
    folder().forget();
  } catch (const IoError& error) {
    say(console_.log(), LogLevel::kWarning,
        fmt::format("the run has not begun, and not all of it could be taken back: {}; begin again with --overwrite",
                    error.what()));
  }
}

void Training::say_what_was_planned() {
  for (size_t g = 0; g < setup_.groups.size(); ++g) {
    const ParameterGroup& group = setup_.groups[g];
    say(console_.log(), LogLevel::kInfo,
        fmt::format("optimizer.param_groups[{}]: {} parameters, weight_decay {:g}, {:g} times the learning rate", g,
                    group.parameters.size(), group.adam.weight_decay, group.learning_rate_factor));
  }
  console_.print(engine_->plan().table());
  predict_steps();
  for (const std::string& line : engine_->describe()) say(console_.log(), LogLevel::kInfo, line);
}

// The run's folder becomes that of this store.
void Training::begin_records() {
  RunConfig& config = setup_.config;
  config.sluice.chunk_elements = engine_->geometry().chunk_elements();
  config.sluice.commit_interval = engine_->plan().commit_interval;
  folder().remove_leftovers();
  folder().claim_store(opening_.stores(), opener_);
  folder().save(config);
  loop_.emplace(*engine_, LoopedRun{setup_, folder(), *data_, *order_},
                StepLoop::Options{.steps = steps_,
                                  .commits = plan_options_->commit_interval == 0 ? StepLoop::Commits::kPaced
                                                                                 : StepLoop::Commits::kAsPlanned,
                                  .carried = carried(),
                                  .predictions = std::move(predictions_),
                                  .clock = options_.clock},
                console_);
  if (!is_new_store_) {
    const int64_t step = loop_->first_step();
    say(console_.log(), LogLevel::kInfo,
        fmt::format("resuming after step {}{}", step, step == 0 ? ": no later one was committed" : ""));
  }
}

// For steps whose updates wait and for those with updates in the backward, whichever this plan has.
void Training::predict_steps() {
  const Plan& plan = engine_->plan();
  if (!plan.options.speeds) return save_would_help({});
  const StepPredictions::Kinds kinds = predicted_kinds(setup_.model.spec(), plan);
  predictions_ = StepPredictions(kinds);
  Prediction present = kinds.early ? *kinds.early : kinds.deferred.value();
  if (kinds.deferred && defers_clipped_steps(plan)) present.clipped_ms = kinds.deferred->step_ms;
  if (plan.options.clips && kinds.mode == UpdateMode::kReplay) present.clipped_ms = twice(present).step_ms;
  console_.print(prediction_words(present, tokens_of_micro_batch(setup_), CriticalOf::kTheseHomes));
  keep_offers(present);
}

// For the run's report, which is not worth a run: memory or a thread for it may be lacking.
void Training::keep_offers(const Prediction& present) {
  std::vector<Offer> offers;
  try {
    offers = offers_.get();
  } catch (const std::exception& error) {
    say(console_.log(), LogLevel::kWarning, fmt::format("what would help is not known: {}", error.what()));
  }
  save_would_help(kept_json(offers, {present.step_ms, tokens_per_step()}, tokens_of_micro_batch(setup_)));
}

void Training::save_would_help(const std::string& json) {
  if (engine_->step() >= steps_) return;  // what a report shows was measured before, perhaps with other homes
  try {
    folder().save_would_help(json);
  } catch (const IoError& error) {
    say(console_.log(), LogLevel::kWarning, fmt::format("the report will not say what would help: {}", error.what()));
  }
}

TrainEnd Training::finish(int signal) {
  TrainEnd end{.step = engine_->step(), .signal = signal, .digests = {}};
  if (signal != 0) return end;
  end.digests = engine_->digests();
  const int64_t first_step = loop_->first_step();
  if (first_step >= steps_) {
    say(console_.log(), LogLevel::kInfo,
        fmt::format("the run has {} steps already, and {} are asked for: nothing is left to train", first_step,
                    steps_));
  }
  const std::optional<Validation> validation = validation_with(end.digests);
  console_.print(summary({.steps = end.step,
                          .steps_here = end.step - first_step,
                          .first_loss = loop_->metrics().first_loss(),
                          .last_loss = loop_->metrics().last_loss(),
                          .validation = validation,
                          .seconds = loop_->seconds(),
                          .device = setup_.device,
                          .workspace_bytes = std::ssize(engine_->workspace()),
                          .workspace_peak_bytes = setup_.model.workspace_peak_bytes(),
                          .endurance = endurance(),
                          .digests = end.digests,
                          .folder = folder().path().string()},
                         engine_->ledger()));
  if (!sample_prompt_.empty()) print_sample();
  return end;
}

// The run's last line has it, and its digests in any case. It may take as long as many steps, and a signal ends it.
std::optional<Validation> Training::validation_with(const Digests& digests) {
  const BrokenPipesIgnored until_the_last_line;
  std::optional<Validation> validation;
  const auto progress = [this](int64_t done, int64_t total) {
    constexpr auto kWords = "validating on {} tokens; step {} is committed: nothing is lost where this is ended";
    if (done == 0) say(console_.log(), LogLevel::kInfo, fmt::format(kWords, total, engine_->step()));
    console_.progress(done, total, "validating");
  };
  try {
    validation = validate_run(*engine_, setup_.model, *data_, {.batch = batch(), .progress = progress});
    console_.finish_progress();
  } catch (...) {
    try {
      loop_->metrics().final_line(digests, {});
    } catch (const Error& error) {
      say(console_.log(), LogLevel::kWarning, error.what());  // what ended the validation is what the run ends with
    }
    throw;
  }
  loop_->metrics().final_line(digests, validation);
  return validation;
}

// What steps like those of this process write; empty where there were none.
std::string Training::endurance() {
  const Plan& plan = engine_->plan();
  const std::optional<WriteRate> rate = rate_of({.steps = engine_->step() - loop_->first_step(),
                                                 .bytes = loop_->written_bytes(),
                                                 .seconds = loop_->seconds(),
                                                 .commit_interval = plan.commit_interval,
                                                 .planned_bytes_per_step = plan.written_bytes_per_step});
  if (!rate) return {};
  return words_and_warning(setup_.config.endurance, *rate, drives_in(opening_.stores()), console_.log());
}

void Training::print_sample() {
  const std::string text =
      sample(*engine_, setup_.model, data_->tokenizer(),
             {.prompt = sample_prompt_,
              .tokens = options_.sample_tokens,
              .temperature = 0.8,
              .seed = setup_.config.seed_or_default(),
              .progress = [&](int64_t done) { console_.progress(done, options_.sample_tokens, "sampling"); }});
  console_.finish_progress();
  console_.print(fmt::format("\nA continuation of \"{}\":\n{}{}", options_.sample, options_.sample, text));
}

}  // namespace

TrainEnd run_training(const TrainOptions& options, Console& console) {
  Training training(options, console);
  try {
    return training.run();
  } catch (const Stopped& stopped) {
    console.finish_progress();
    return {.step = 0, .signal = stopped.signal, .stopped = TrainEnd::Stopped::kBeforeAStep, .digests = {}};
  }
}

}  // namespace sluice
