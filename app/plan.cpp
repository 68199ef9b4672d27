#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.h"
#include "app/endurance.h"
#include "app/free_space.h"
#include "app/machine_file.h"
#include "app/setup.h"
#include "app/speeds.h"
#include "app/what_if.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "engine/zero_memory.h"
#include "models/gpt2_workspace.h"
#include "swap/drive_folders.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of_home(Home home) {
  return home == Home::kDevice ? "device" : home == Home::kHost ? "host" : "nvme";
}

// Chunks and bytes of each group by home; what has none is left out.
Json homes_json(const Plan& plan) {
  Json json = Json::object();
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkHomes& homes = plan.chunks[i];
    const int64_t elements = plan.geometry.chunks()[i].elements;
    const auto add = [&](Group group, Home home, int64_t bytes_each) {
      if (home == Home::kNowhere) return;
      Json& row = json[std::string(name_of(group))][std::string(name_of_home(home))];
      if (row.is_null()) row = {{"chunks", 0}, {"bytes", 0}};
      row["chunks"] = row["chunks"].get<int64_t>() + 1;
      row["bytes"] = row["bytes"].get<int64_t>() + elements * bytes_each;
    };
    const RecordFormat format = plan.options.format();
    add(Group::kWeights, homes.weights, bytes_per_element(format, Group::kWeights));
    add(Group::kState, homes.state, bytes_per_element(format, Group::kState));
    add(Group::kGradient, homes.gradient, bytes_of(plan.options.gradient_dtype));
  }
  return json;
}

// Of the plan, of what would help, and of what --what-if asks for.
struct Outlook {
  Prediction present;
  std::vector<Offer> offers;
  struct WhatIf {
    Resources resources;
    Prediction prediction;
    int commit_interval = 1;
  };
  std::optional<WhatIf> what_if;
};

WriteRate rate_of(const Plan& plan, const std::optional<Outlook>& outlook) {
  return {.bytes_per_step = std::llround(plan.written_bytes_per_step),
          .step_seconds = outlook ? outlook->present.step_ms / 1e3 : 0,
          .undone_bytes = plan.undone_bytes};
}

Json endurance_json(const EnduranceConfig& asked, const WriteRate& rate, const WrittenDrives& drives) {
  const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  const Endurance endurance = endurance_of(asked, rate, drives);
  Json json = {{"bytes_per_step", rate.bytes_per_step},
               {"undone_bytes", rate.undone_bytes},
               {"bytes_per_day", number(endurance.bytes_per_day)}};
  if (asked.terabytes_written > 0) {
    json["terabytes_written"] = asked.terabytes_written;
    json["days"] = asked.days;
    json["lasts_steps"] = number(endurance.lasts_steps);
    json["lasts_days"] = number(endurance.lasts_days);
    json["too_short"] = endurance.is_too_short;
  }
  json["drives"] = Json::array();
  for (const auto& [drive, share] : drives.list) {
    json["drives"].push_back({{"device", drive.device},
                              {"share", share},
                              {"written_bytes", drive.written_bytes ? Json(*drive.written_bytes) : Json(nullptr)},
                              {"used_percent", drive.used_percent ? Json(*drive.used_percent) : Json(nullptr)},
                              {"reason", drive.reason}});
  }
  return json;
}

// Weights, gradients and optimizer state, wherever they live.
double model_state_bytes(const RunSetup& setup, const Plan& plan) {
  const RecordFormat format = plan.options.format();
  return bytes_per_device({.parameters = setup.model.parameter_count(),
                           .ranks = 1,
                           .weights_bytes = static_cast<double>(bytes_per_element(format, Group::kWeights)),
                           .gradient_bytes = static_cast<double>(bytes_of(plan.options.gradient_dtype)),
                           .state_bytes = static_cast<double>(bytes_per_element(format, Group::kState))},
                          ZeroStage::kNone);
}

Json plan_json(const RunSetup& setup, const Plan& plan, const WorkspaceNeed& workspace) {
  Json json;
  json["parameters"] = setup.model.parameter_count();
  json["model_state_bytes"] = model_state_bytes(setup, plan);
  json["precision"] = std::string(name_of(plan.options.precision));
  json["budgets"] = {{"device", plan.options.device_bytes}, {"host", plan.options.host_bytes}};
  json["workspace"] = {{"bytes", workspace.memory.workspace_bytes},
                       {"measured", workspace.from == WorkspaceNeed::From::kMeasured}};
  json["chunk_elements"] = plan.geometry.chunk_elements();
  json["chunks"] = plan.chunks.size();
  json["partitions_kept_on_device"] =
      std::count_if(plan.kept_offset.begin(), plan.kept_offset.end(), [](int64_t offset) { return offset >= 0; });
  json["commit_interval"] = plan.commit_interval;
  if (const auto& other = plan.other_commits)
    json["other_commits"] = {{"commit_interval", other->interval}, {"step_ms", other->step_ms}};
  json["disk_bytes"] = plan.disk_bytes;
  json["homes"] = homes_json(plan);
  json["uses"] = Json::array();
  for (const UseRow& row : plan.uses) {
    json["uses"].push_back({{"tier", std::string(name_of(row.tier))}, {"use", row.use}, {"bytes", row.bytes}});
  }
  json["moves_per_step"] = Json::array();
  for (const MoveRow& row : plan.moves) {
    json["moves_per_step"].push_back({{"link", row.link}, {"what", row.what}, {"bytes", row.bytes}});
  }
  return json;
}

// Where a machine's file says how fast it computes, nothing is tried on this one.
bool is_elsewhere(const std::optional<MachineSpeeds>& named) { return named && named->compute_tflop_per_s > 0; }

// Elsewhere, budgets that an estimate finds too small, or the smallest it names, may be taken or refused.
Plan make_plan_for(const std::optional<MachineSpeeds>& named, const ModelSpec& model, const PlanOptions& options) {
  try {
    return make_plan(model, options);
  } catch (const BudgetError& error) {
    if (!is_elsewhere(named)) throw;
    throw BudgetError(fmt::format(
        "{}; all of it with a workspace by the closed form: training there measures its own, most often within 15 % of "
        "that and for the smallest of models within 30, so leave it room ({}) in device_memory beyond what is named "
        "here",
        error.what(), format_bytes(with_closed_form_margin(options.workspace_bytes) - options.workspace_bytes)));
  }
}

struct WhatIfAsked {
  std::optional<Resources> resources;
  const std::vector<std::string>& words;  // as the command line has them
  const std::optional<MachineSpeeds>& named;
};

Plan plan_what_if(const ModelSpec& model, const PlanOptions& changed, const WhatIfAsked& asked) {
  try {
    return make_plan_for(asked.named, model, changed);
  } catch (const ConfigError& error) {  // the plan itself has passed
    throw ConfigError(fmt::format("--what-if {}: {}", fmt::join(asked.words, ","), error.what()));
  }
}

Outlook look_ahead(const ModelSpec& model, const PlanOptions& options, const Plan& plan, const WhatIfAsked& asked) {
  std::future<Prediction> present =
      std::async(std::launch::async, [&] { return predict_with_critical_batch(model, options, plan); });
  Outlook outlook{.present = {}, .offers = what_would_help(model, options, plan), .what_if = {}};
  outlook.present = present.get();
  if (asked.resources) {
    PlanOptions changed = with_resources(options, *asked.resources);
    changed.chunk_elements = plan.geometry.chunk_elements();  // as what_would_help: a store keeps its chunks
    const Plan changed_plan = plan_what_if(model, changed, asked);
    outlook.what_if = Outlook::WhatIf{*asked.resources, predict_with_critical_batch(model, changed, changed_plan),
                                      changed_plan.commit_interval};
  }
  return outlook;
}

void add_outlook(Json& json, const Outlook& outlook, int64_t tokens) {
  json["prediction"] = Json::parse(prediction_json(outlook.present, tokens));
  json["would_help"] = Json::parse(would_help_json(outlook.offers, tokens));
  if (!outlook.what_if) return;
  json["what_if"] = Json::parse(resources_json(outlook.what_if->resources, tokens));
  json["what_if"]["commit_interval"] = outlook.what_if->commit_interval;
  json["what_if"]["prediction"] = Json::parse(prediction_json(outlook.what_if->prediction, tokens));
}

std::string outlook_words(const Outlook& outlook, const std::vector<std::string>& changes, const PlanOptions& options,
                          int64_t tokens) {
  const StepTime present{outlook.present.step_ms, options.micro_batches * tokens};
  std::string text =
      prediction_words(outlook.present, tokens, CriticalOf::kPlans) + would_help_words(outlook.offers, present, tokens);
  if (!outlook.what_if) return text;
  const StepTime changed{outlook.what_if->prediction.step_ms, outlook.what_if->resources.micro_batches * tokens};
  return text + fmt::format("\nwhat if      {}: {}, a commit every {} step{}\n{}", fmt::join(changes, ", "),
                            step_times_words(present, changed), outlook.what_if->commit_interval,
                            outlook.what_if->commit_interval == 1 ? "" : "s",
                            prediction_words(outlook.what_if->prediction, tokens, CriticalOf::kPlans));
}

// Of a machine whose file says how many drives it has, where the configuration names none.
PlanOptions plan_options_for(const RunSetup& setup, const std::optional<MachineSpeeds>& named,
                             const ComputeMemory& memory) {
  PlanOptions options = plan_options(setup, memory);
  if (setup.config.sluice.nvme.empty() && named && named->drives > 0) options.drives = named->drives;
  return options;
}

// What training that begins would refuse here. One that goes on has its store, whose room counts as free.
void warn_of_little_room(const RunFolder& run, const RunSetup& setup, const Plan& plan, const Log& log) {
  const std::vector<std::filesystem::path> folders = run.stores(setup.config);
  if (std::ssize(folders) != plan.options.drives) return;  // another machine's
  try {
    check_free_space(folders, drive_needs(plan), StoreThere::kReplaced);
  } catch (const ConfigError& refusal) {
    say(log, LogLevel::kWarning, fmt::format("no run can be begun with this plan here: {}", refusal.what()));
  }
}

std::string_view source_of(const WorkspaceNeed& workspace, const std::optional<MachineSpeeds>& named) {
  if (workspace.from == WorkspaceNeed::From::kMeasured) return "measured";
  return is_elsewhere(named) ? "by the closed form: another machine's compute is not tried on this one"
                             : "by the closed form, with a margin: a micro-batch is too large to be tried here";
}

}  // namespace

void run_plan(const PlanCommand& command, Console& console) {
  RunConfig config = load_config(command.config, command.overrides);
  const std::optional<MachineSpeeds> named = named_machine(command.machine);
  make_paths_absolute(config);
  RunSetup setup = set_up(std::move(config), console.log());
  const int64_t tokens = tokens_of_micro_batch(setup);
  std::optional<Resources> what_if;
  if (!command.what_if.empty()) {
    what_if = changed_resources(resources_of(plan_options_for(setup, named, {})), command.what_if, tokens);
  }
  const WorkspaceNeed workspace =
      is_elsewhere(named) ? estimate_workspace(setup) : find_workspace(setup, console.log());
  if (!is_elsewhere(named)) warn_of_no_drives(store_drives(setup.config), console.log());
  PlanOptions options = plan_options_for(setup, named, workspace.memory);
  options.speeds = find_speeds(setup, workspace,
                               {.machine = named,
                                .folders = store_drives(setup.config),
                                .waiting_ms = {},
                                .drives = DriveFigures::kOfStoreThere,
                                .drive_count = options.drives},
                               console.log());
  if (what_if && !options.speeds) throw ConfigError("--what-if: no step time can be predicted here");
  PlanOptions longest = options;
  if (what_if) longest.micro_batches = std::max(options.micro_batches, what_if->micro_batches);
  say_what_planning_takes(setup.model.spec(), longest, console.log());
  const Plan plan = make_plan_for(named, setup.model.spec(), options);
  if (!is_elsewhere(named))
    warn_of_little_room(RunFolder(default_run_folder(command.config)), setup, plan, console.log());
  std::optional<Outlook> outlook;
  if (options.speeds) outlook = look_ahead(setup.model.spec(), options, plan, {what_if, command.what_if, named});
  const EnduranceConfig& asked = setup.config.endurance;
  const WriteRate rate = rate_of(plan, outlook);
  const WrittenDrives drives = drives_in(store_drives(setup.config));
  const std::string endurance = words_and_warning(asked, rate, drives, console.log());
  if (command.output == PlanOutput::kJson) {
    Json json = plan_json(setup, plan, workspace);
    json["prediction"] = nullptr;
    if (outlook) add_outlook(json, *outlook, tokens);
    json["endurance"] = endurance_json(asked, rate, drives);
    console.print(json.dump(2));
    return;
  }
  console.print(fmt::format("{} parameters in {}; workspace {} ({})", setup.model.parameter_count(),
                            name_of(plan.options.precision), format_bytes(workspace.memory.workspace_bytes),
                            source_of(workspace, named)));
  console.print(plan.table());
  if (outlook) console.print(outlook_words(*outlook, command.what_if, options, tokens));
  console.print(endurance);
}

}  // namespace sluice
