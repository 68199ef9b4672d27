#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "app/batches.h"
#include "app/commands.h"
#include "app/free_space.h"
#include "app/output_file.h"
#include "app/override_options.h"
#include "app/run_folder.h"
#include "app/scratch_run.h"
#include "app/speeds.h"
#include "app/tune_report.h"
#include "app/tune_trials.h"
#include "bench/step_bench.h"
#include "configs/batch.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/pending_file.h"
#include "data/dataset.h"
#include "data/token_source.h"
#include "offload/device.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int kTrialRounds = 3;

// Where the chosen configuration goes. Throws ConfigError where that cannot be, before minutes have gone by.
fs::path file_of(const TuneCommand& command) {
  fs::path file = command.out;
  if (file == "-") {
    throw ConfigError(
        "--out is -: what was tried goes to standard output, and the configuration to a file: name one (./- for a file "
        "of that name)");
  }
  if (file.empty()) {
    file = fs::path(command.config).replace_extension(".tuned.json");
    if (fs::exists(file)) {
      throw ConfigError(fmt::format("{}: is there already; name a file to write with --out", file.string()));
    }
  }
  const auto refuse = [&file](std::string_view why) {
    throw ConfigError(fmt::format("{}: cannot be written: {}; name another file with --out", file.string(), why));
  };
  if (fs::is_directory(file)) refuse("it is a folder");
  const fs::path folder = fs::absolute(file).parent_path();
  if (access(folder.c_str(), W_OK) != 0) refuse(fmt::format("{}: {}", folder.string(), std::strerror(errno)));
  return file;
}

// Both budgets are the host's memory then, and what one has less the other may have more.
bool budgets_share_memory(const RunSetup& setup) { return setup.device == DeviceKind::kHost; }

int64_t largest_partition(const ModelSpec& model) {
  int64_t largest = 0;
  for (const PartitionSpec& partition : model.partitions) {
    int64_t elements = 0;
    for (const ParameterSpec& parameter : partition.parameters) elements += parameter.elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

// A step's tokens: of the configuration's text, or made up where it has none.
class StepTokens {
 public:
  using Progress = std::function<void(int64_t, int64_t)>;
  StepTokens(const RunSetup& setup, const fs::path& drive, const Progress& progress, const Log& log) {
    if (setup.config.data.path.empty()) {
      made_up_.emplace(setup);
      return;
    }
    cache_.emplace(drive);
    data_.emplace(Dataset::prepare({.data = setup.config.data,
                                    .cache_folder = cache_->path(),
                                    .reading = progress,
                                    .progress = progress,
                                    .log = log}));
    batches_.emplace(*data_, setup.config.batch.train);
    read_ = batches_->fill(Batches::Part::kTraining, setup.config.batch.train,
                           [this](int64_t sample) { return sample % data_->training_samples(); });
  }
  TokenBatches get() const { return made_up_ ? made_up_->batches() : read_; }

 private:
  std::optional<MadeUpTokens> made_up_;
  std::optional<ScratchFolder> cache_;
  std::optional<Dataset> data_;
  std::optional<Batches> batches_;
  TokenBatches read_;
};

// Over an earlier configuration, and not over the one that is tuned or one that a run keeps of itself.
fs::path configuration_file(const fs::path& path, const fs::path& tuned) {
  const fs::path file = output_file(path, {.begins_with = "{", .name = "a configuration"});
  std::error_code ignored;
  if (fs::equivalent(file, tuned, ignored)) {
    throw ConfigError(fmt::format(
        "{}: that is the configuration to tune, and it stays as it is: give another file with --out", path.string()));
  }
  const RunFolder beside(file.parent_path());
  if (beside.holds() == RunFolder::Holds::kRun && beside.is_own(file)) {
    throw ConfigError(
        fmt::format("{}: a run writes a file of that name there itself: give another file with --out", path.string()));
  }
  return file;
}

// Members in the order in which they are made.
class Tuning {
 public:
  Tuning(const TuneCommand& command, Console& console)
      : command_(command),
        console_(console),
        file_(configuration_file(file_of(command), command.config)),
        pending_(std::make_unique<PendingFile>(file_)),
        config_(read_config()) {}

  void run() {
    time_batchings();
    const StepTokens tokens(*setups_.front(), drives_.front(), progress("reading text"), console_.log());
    console_.finish_progress();
    const TuneSearch search = search_all();
    std::vector<Trial> trials = make_trials(search);
    const TrialOptions options{.rounds = kTrialRounds,
                               .steps = command_.steps,
                               .tokens = tokens.get(),
                               .drives = drives_,
                               .make_queue = command_.make_queue,
                               .between = [this] { stop_where_asked(requests_); }};
    say(console_.log(), LogLevel::kInfo,
        fmt::format("trying {} of them, {} rounds of {}: about {}", trials.size(), options.rounds,
                    steps_of_round_words(trials, options), format_duration(predicted_seconds(trials, options))));
    run_trials(trials, options, console_);
    const Trial& chosen = choose(trials);
    write(chosen);
    const TuneReport report{.trials = trials,
                            .chosen = chosen,
                            .tokens_of_step = config_.batch.train * config_.data.sequence_length,
                            .predicted = static_cast<int64_t>(search.candidates.size()),
                            .unfit = search.unfit,
                            .file = file_.string()};
    console_.print(command_.output == TuneCommand::Output::kJson ? report_json(report) : report_words(report));
  }

 private:
  RunConfig read_config() const {
    refuse_trace(command_.overrides);
    RunConfig config = load_config(command_.config, command_.overrides);
    make_paths_absolute(config);
    config.sluice.trace.clear();  // of the training
    if (!command_.data.empty()) {
      config.data.path = fs::absolute(command_.data).lexically_normal();
    } else if (!sets(command_.overrides, "data.path")) {
      config.data.path.clear();  // made-up tokens take as long
    }
    if (!config.data.path.empty()) check_is_there(config.data);
    return config;
  }
  std::function<void(int64_t, int64_t)> progress(const std::string& words) {
    return [this, words](int64_t done, int64_t total) {
      stop_where_asked(requests_);
      console_.progress(done, total, words);
    };
  }
  void time_batchings();
  void add_batching(int64_t samples);
  TuneSearch search_all();
  std::vector<Trial> make_trials(const TuneSearch& search);
  void write(const Trial& chosen);

  const TuneCommand& command_;
  Console& console_;
  const StopRequests requests_;
  fs::path file_;
  std::unique_ptr<PendingFile> pending_;  // it: made before minutes of trials, after which it could not be
  RunConfig config_;
  std::vector<fs::path> drives_;
  std::vector<std::unique_ptr<RunSetup>> setups_;  // of the space's batchings
  TuneSpace space_;
  PlanOptions base_;
};

// The one as given first: it also says what the machine does, and fixes what follows from the memory that is free.
void Tuning::time_batchings() {
  std::vector<int64_t> sizes = micro_batch_sizes(config_.batch.train, config_.batch.micro);
  std::erase_if(sizes, [this](int64_t size) {  // which no configuration can have
    return size > kMostSamples || config_.batch.train / size > kMostMicroBatches;
  });
  say(console_.log(), LogLevel::kInfo,
      fmt::format("timing micro-batches of {} of the {} samples of a step", fmt::join(sizes, ", "),
                  config_.batch.train));
  for (size_t i = 0; i < sizes.size(); ++i) {
    progress("timing micro-batches")(static_cast<int64_t>(i), static_cast<int64_t>(sizes.size()));
    add_batching(sizes[i]);
  }
  console_.finish_progress();
}

void Tuning::add_batching(int64_t samples) {
  RunConfig config = config_;
  config.batch.micro = samples;
  config.batch.accumulation = config.batch.train / samples;
  auto setup = std::make_unique<RunSetup>(set_up(std::move(config), setups_.empty() ? console_.log() : Log{}));
  if (setups_.empty() && !setup->config.data.path.empty()) validate(setup->config.data);
  if (!setups_.empty() && estimate_workspace(*setup).memory.workspace_bytes > space_.total_bytes)
    return;  // far from fitting
  const WorkspaceNeed workspace = find_workspace(*setup, console_.log());
  std::optional<std::vector<VisitTime>> visits;
  if (setups_.empty()) {
    drives_ = store_drives(setup->config);
    warn_of_no_drives(drives_, console_.log());
    base_ = plan_options(*setup, workspace.memory);
    const auto speeds =
        find_speeds(*setup, workspace, {.machine = {}, .folders = drives_, .waiting_ms = {}}, console_.log());
    if (!speeds) throw ConfigError(fmt::format("{}: no step time can be predicted here", command_.config));
    base_.speeds = speeds;
    visits = speeds->visits;
    space_.total_bytes = base_.device_bytes + base_.host_bytes;
    config_.sluice.compute_threads = setup->config.sluice.compute_threads;
    config_.sluice.update_threads = setup->config.sluice.update_threads;
  } else {
    visits = time_visits(*setup, workspace, {});
    if (!visits) return;  // too large to be tried here
  }
  space_.batchings.push_back({.samples = samples,
                              .micro_batches = static_cast<int>(setup->config.batch.accumulation),
                              .model = setup->model.spec(),
                              .workspace_bytes = workspace.memory.workspace_bytes,
                              .graph_bytes = plan_options(*setup, workspace.memory).graph_bytes,
                              .visits = std::move(*visits)});
  setups_.push_back(std::move(setup));
}

TuneSearch Tuning::search_all() {
  space_.chunk_elements = chunk_sizes(largest_partition(space_.batchings.front().model), base_.chunk_elements);
  space_.device_bytes = {base_.device_bytes};
  if (budgets_share_memory(*setups_.front()))
    space_.device_bytes = device_shares(space_.total_bytes, base_.device_bytes);
  TuneSearch search = search_settings(space_, base_, progress("predicting steps"));
  console_.finish_progress();
  // Refused as by `plan`, with what would do.
  if (search.candidates.empty()) make_plan(space_.batchings.front().model, base_);
  return search;
}

std::vector<Trial> Tuning::make_trials(const TuneSearch& search) {
  std::vector<Trial> trials;
  for (const TuneCandidate& candidate : worth_trying(search, command_.trials)) {
    RunSetup& setup = *setups_[candidate.settings.batching];
    trials.push_back(make_trial(candidate, setup, options_of(space_, candidate.settings, base_)));
    check_free_space(drives_, trials.back().needs, StoreThere::kStays);
  }
  return trials;
}

void Tuning::write(const Trial& chosen) {
  std::vector<std::string> overrides = command_.overrides;
  for (const auto& [path, value] : changed_keys(chosen, base_)) overrides.push_back(path + "=" + value);
  const std::string text = overridden_document(command_.config, overrides);
  pending_->append(text);
  pending_->publish();
}

}  // namespace

int run_tune(const TuneCommand& command, Console& console) {
  try {
    Tuning(command, console).run();
    return 0;
  } catch (const Stopped& stopped) {
    return stopped.signal;
  }
}

}  // namespace sluice
