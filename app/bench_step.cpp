#include "app/bench_step.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/console.h"
#include "app/free_space.h"
#include "app/machine_file.h"
#include "app/name_option.h"
#include "app/override_options.h"
#include "app/run_folder.h"
#include "app/scratch_run.h"
#include "app/setup.h"
#include "app/signals.h"
#include "app/speeds.h"
#include "app/step_predictions.h"
#include "app/whole_number.h"
#include "bench/step_bench.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct BenchStepCommand {
  std::string config;
  std::vector<std::string> overrides;
  std::string machine;
  std::optional<double> compute_ms_per_visit;
  int rounds = 3, steps = 3;
  enum class Output { kText, kJson } output = Output::kText;
};

// Small numbers, quickly, for compute that does not look at them.
ParameterSource cheap_values() {
  return [](const Parameter&, int64_t first, std::span<float> into) {
    for (size_t i = 0; i < into.size(); ++i) {
      into[i] = static_cast<float>((first + static_cast<int64_t>(i)) % 17 - 8) * 0.01f;
    }
  };
}

std::string moved_words(LaneGroup resource, const StepLanes& lanes) {
  switch (resource) {
    case LaneGroup::kNvme:
      return fmt::format("{} read, {} written", format_bytes(lanes[Lane::kRead].bytes),
                         format_bytes(lanes[Lane::kWrite].bytes));
    case LaneGroup::kCpu:
      return fmt::format("{} updated and verified", format_bytes(lanes[Lane::kUpdate].bytes));
    case LaneGroup::kCopies:
      return fmt::format("{} up, {} down", format_bytes(lanes[Lane::kUpload].bytes),
                         format_bytes(lanes[Lane::kDownload].bytes));
    case LaneGroup::kCompute:
      return "visits, close and clip";
  }
  return "";
}

std::string ceiling_words(LaneGroup resource) {
  switch (resource) {
    case LaneGroup::kNvme:
      return "requests of the store's size and depth, reads and writes as mixed";
    case LaneGroup::kCpu:
      return "AdamW and its checksums, nothing else";
    case LaneGroup::kCopies:
      return "plain copies, a thread each way";
    case LaneGroup::kCompute:
      return "";
  }
  return "";
}

struct Measured {
  StepFigures figures;
  std::optional<Prediction> predicted;
  int64_t tokens_of_micro_batch = 0;
  double tokens_per_s = 0, tflop_per_s = 0;  // the model's own operations, without recompute
};

// What was under way while nothing was computed.
std::array<std::pair<std::string_view, double>, kLaneCount - 1> exposed_ms(const StepFigures& figures) {
  const auto row = [&](Lane lane) { return std::pair(name_of(lane), figures.exposed_ms[static_cast<size_t>(lane)]); };
  return {row(Lane::kRead), row(Lane::kWrite), row(Lane::kUpload), row(Lane::kDownload), row(Lane::kUpdate)};
}

double percent_of_ceiling(const ReplayFigure& figure) { return 100 * figure.ceiling_ms / figure.ms; }

std::string interval_words(const StepFigures& figures) {
  const int measured = figures.measured_steps / static_cast<int>(figures.steps_ms.size());
  if (measured == 1) return "";
  const std::string rarer =
      measured == figures.commit_interval ? "" : fmt::format(", counted as one of {}", figures.commit_interval);
  return fmt::format(" means over {} steps, one of which commits{} (replays have no commit),", measured, rarer);
}

bool were_undone(const StepFigures& figures) {
  return 2 * figures.wrong_steps > figures.measured_steps && figures.passes == 1;
}

std::string skipped_words(const StepFigures& figures) {
  if (figures.skipped_steps == 0) return "";
  return fmt::format(", skipped (a gradient was not finite, nothing was updated) in {} of {}", figures.skipped_steps,
                     figures.measured_steps);
}

std::string figures_text(const Measured& measured) {
  const StepFigures& figures = measured.figures;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(
      out, "step         {:9.1f} ms  median of {}{} ({:.1f} to {:.1f}); gradient norm {:.3g}, clipped in {}{}{}\n",
      figures.step_ms, figures.steps_ms.size(), interval_words(figures), figures.steps_ms.front(),
      figures.steps_ms.back(), figures.grad_norm, figures.clipped_steps, skipped_words(figures),
      figures.passes == 2 ? ", so steps run twice and all below counts twice" : "");
  fmt::format_to(out,
                 "             {:9.0f} tokens/s, {:.3f} TFLOP/s; while nothing is computed:", measured.tokens_per_s,
                 measured.tflop_per_s);
  for (const auto& [lane, ms] : exposed_ms(figures)) fmt::format_to(out, " {} {:.1f}", lane, ms);
  text += " ms\n";
  if (measured.predicted) {
    text += prediction_words(*measured.predicted, measured.tokens_of_micro_batch, CriticalOf::kTheseHomes);
  } else if (were_undone(figures)) {
    text +=
        "             early updates were undone and done again: nothing is predicted of that, and replayed is one "
        "update\n";
  }
  fmt::format_to(out, "its hops replayed alone:\n");
  for (int i = 0; i < kLaneGroupCount; ++i) {
    const auto resource = static_cast<LaneGroup>(i);
    const ReplayFigure& figure = figures.replays[static_cast<size_t>(i)];
    fmt::format_to(out, "  {:<10} {:9.1f} ms  {}", name_of(resource), figure.ms, moved_words(resource, figure.lanes));
    if (figure.ceiling_ms > 0) {
      fmt::format_to(out, "; {:.0f} % of what this machine reaches ({:.1f} ms: {})", percent_of_ceiling(figure),
                     figure.ceiling_ms, ceiling_words(resource));
    }
    text += "\n";
  }
  const bool disturbed = figures.overlap_efficiency > 1;
  fmt::format_to(out, "overlap efficiency {:.3f}: the longest replay, {}, by the step{}", figures.overlap_efficiency,
                 name_of(figures.binding),
                 disturbed ? "; above 1: other work has disturbed one of them, and more --rounds tell more" : "");
  return text;
}

Json figures_json(const Measured& measured) {
  const StepFigures& figures = measured.figures;
  Json json = {{"step_ms", figures.step_ms}, {"replay_ms", Json::object()}};
  for (int i = 0; i < kLaneGroupCount; ++i) {
    const std::string name(name_of(static_cast<LaneGroup>(i)));
    const ReplayFigure& figure = figures.replays[static_cast<size_t>(i)];
    json["replay_ms"][name] = figure.ms;
    json["replay_percent_of_ceiling"][name] = figure.ceiling_ms > 0 ? Json(percent_of_ceiling(figure)) : Json(nullptr);
  }
  json["overlap_efficiency"] = figures.overlap_efficiency;
  json["binding_lane"] = std::string(name_of(figures.binding));
  json["predicted_step_ms"] = measured.predicted ? Json(measured.predicted->step_ms) : Json(nullptr);
  json["tokens_per_s"] = measured.tokens_per_s;
  json["tflop_per_s"] = measured.tflop_per_s;
  for (const auto& [lane, ms] : exposed_ms(figures)) json["exposed_ms"][std::string(lane)] = ms;
  json["measured_steps"] = figures.measured_steps;
  json["clipped_steps"] = figures.clipped_steps;
  json["skipped_steps"] = figures.skipped_steps;
  return json;
}

// Of steps as most of the measured ones were; of steps whose early updates are undone there is none.
std::optional<Prediction> predict_measured(const ModelSpec& model, const Plan& plan, const StepFigures& figures) {
  if (!plan.options.speeds || were_undone(figures)) return std::nullopt;
  const bool early = 2 * figures.early_steps > figures.measured_steps;
  const Prediction once =
      predict(model, plan, *plan.options.speeds, early ? UnitKind::kTrainSpeculative : UnitKind::kTrain);
  return figures.passes == 2 ? twice(once) : once;
}

// A trace that the file names is of its training, and is not replaced.
RunConfig read_config(const BenchStepCommand& command) {
  RunConfig config = load_config(command.config, command.overrides);
  make_paths_absolute(config);
  if (!sets(command.overrides, "sluice.trace")) config.sluice.trace.clear();
  return config;
}

Measured measure(const BenchStepCommand& command, Console& console) {
  RunConfig config = read_config(command);
  const std::optional<MachineSpeeds> named = named_machine(command.machine);
  RunSetup setup = set_up(std::move(config), console.log());
  if (command.compute_ms_per_visit && setup.device != DeviceKind::kHost) {
    throw ConfigError("--compute-ms-per-visit waits in the host's memory: say --device cpu with it");
  }
  const StopRequests requests;
  const auto between = [&requests] { stop_where_asked(requests); };
  const WorkspaceNeed workspace = find_workspace(setup, console.log());
  const std::vector<fs::path> drives = store_drives(setup.config);
  warn_of_no_drives(drives, console.log());
  PlanOptions plan = plan_options(setup, workspace.memory);
  if (command.compute_ms_per_visit) plan.graph_bytes.clear();  // a wait computes nothing that could be kept
  check_free_space(drives, drive_needs(make_plan(setup.model.spec(), plan)), StoreThere::kStays);
  plan.speeds = find_speeds(setup, workspace,
                            {.machine = named,
                             .folders = drives,
                             .waiting_ms = command.compute_ms_per_visit,
                             .drives = DriveFigures::kMeasuredNow},
                            console.log());
  ScratchRun run(
      setup, engine_options(setup, plan, drives, console.log()),
      command.compute_ms_per_visit ? cheap_values() : setup.model.initial_values(setup.config.seed_or_default()),
      [&](int64_t done, int64_t total) {
        between();
        console.progress(done, total, "creating the scratch store");
      });
  console.finish_progress();
  Engine& engine = run.engine();
  const MadeUpTokens tokens(setup);
  const Compute compute = command.compute_ms_per_visit
                              ? waiting_compute(setup.model.spec(), *command.compute_ms_per_visit)
                              : setup.model.compute(tokens.batches());
  if (command.output == BenchStepCommand::Output::kText) console.print(engine.plan().table());
  StepFigures figures = bench_step(engine, run.options(), compute,
                                   {.learning_rate = setup.config.optimizer.learning_rate,
                                    .rounds = command.rounds,
                                    .steps = command.steps,
                                    .between = between});
  const std::optional<Prediction> predicted = predict_measured(setup.model.spec(), engine.plan(), figures);
  const int64_t of_micro_batch = tokens_of_micro_batch(setup);
  const double tokens_per_s = static_cast<double>(of_micro_batch * plan.micro_batches) / figures.step_ms * 1e3;
  return {.figures = std::move(figures),
          .predicted = predicted,
          .tokens_of_micro_batch = of_micro_batch,
          .tokens_per_s = tokens_per_s,
          .tflop_per_s = setup.model.training_flops_per_token() * tokens_per_s / 1e12};
}

void run_bench_step(const BenchStepCommand& command, int& exit_code) {
  Console console;
  try {
    const Measured measured = measure(command, console);
    const bool json = command.output == BenchStepCommand::Output::kJson;
    console.print(json ? figures_json(measured).dump() : figures_text(measured));
  } catch (const Stopped& stopped) {
    exit_code = 128 + stopped.signal;
  }
}

std::string check_wait(const std::string& text) {
  double value = 0;
  const bool good = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1e6;
  return good ? "" : text + " is not a number of milliseconds, 0 to 1000000";
}

}  // namespace

void add_bench_step(CLI::App& bench, int& exit_code) {
  auto options = std::make_shared<BenchStepCommand>();
  CLI::App* command = bench.add_subcommand(
      "step", "A whole step, and its hops of each resource replayed alone: how well the lanes overlap");
  command->add_option("CONFIG", options->config, "The configuration file (JSON)")->required();
  add_overrides(*command, options->overrides, "file");
  command
      ->add_option("--compute-ms-per-visit", options->compute_ms_per_visit,
                   "In place of the compute, waits that use no CPU: so long for a visit's forward of a micro-batch, "
                   "3 times for its backward, 4 times for the last visit")
      ->check(check_wait);
  command->add_option("--machine", options->machine, "Predict with the speeds of this JSON file (README)")
      ->check(check_name);
  command->add_option("--rounds", options->rounds, "Rounds of steps and replays (default: 3)")
      ->check(whole_number(1, 1000));
  command->add_option("--steps", options->steps, "Measured steps in a round (default: 3)")
      ->check(whole_number(1, 1000));
  command->add_flag_callback(
      "--json", [options] { options->output = BenchStepCommand::Output::kJson; }, "As one line of JSON");
  command->callback([options, &exit_code] { run_bench_step(*options, exit_code); });
}

}  // namespace sluice
