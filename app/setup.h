// From a configuration to a model and a plan: what train, plan, generate and export have in common.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/run_folder.h"
#include "configs/run_config.h"
#include "core/log.h"
#include "engine/engine.h"
#include "models/gpt2.h"
#include "models/hugging_face.h"

namespace sluice {

class Dataset;

// As a run's files write a path down: absolute, without . and .. and a slash at its end. Throws ConfigError where it is
// not UTF-8, as those files are.
std::string absolute_text(const std::filesystem::path& path);
// Of all paths. Throws ConfigError too where a folder of the store is there twice.
void make_paths_absolute(RunConfig& config);

// The model's section of a run whose weights are in its store: the Hugging Face folder that they came from is not read
// any more.
std::string without_folder(const std::string& model);
std::filesystem::path folder_in(const std::string& model);  // empty: they did not

struct RunSetup {
  RunConfig config;                       // with all defaults filled in, but for what the plan decides
  DeviceKind device = DeviceKind::kHost;  // that config.sluice.device comes to here: kHost or kCuda
  ModelSection section;
  Gpt2 model;
  std::vector<ParameterGroup> groups;  // of optimizer.param_groups
};
// Logs the configuration's notes, chooses the device, reads the model's section, fills in defaults, sets LibTorch's
// threads. Throws ConfigError; and DeviceError where the device that the configuration insists on cannot be had.
RunSetup set_up(RunConfig config, const Log& log);

// What compute needs: measured by running one of each kind of block, or by the closed form where that would take more
// memory than is free.
struct WorkspaceNeed {
  ComputeMemory memory;
  enum class From { kMeasured, kClosedForm } from = From::kMeasured;
};
// The log hears of it before it takes long. The closed form comes with a margin for its error.
WorkspaceNeed find_workspace(RunSetup& setup, const Log& log);
WorkspaceNeed estimate_workspace(const RunSetup& setup);  // the closed form as it is
// What its visits take, measured. nullopt: that would take more memory than is free, or finding the workspace would
// have; the log hears of it.
std::optional<std::vector<VisitTime>> time_visits(RunSetup& setup, const WorkspaceNeed& workspace, const Log& log);

PlanOptions plan_options(const RunSetup& setup, const ComputeMemory& memory);
// Where plans of these options may take minutes. Before they are made: nothing else is heard until then.
void say_what_planning_takes(const ModelSpec& model, const PlanOptions& options, const Log& log);
// Of a run of so many steps over this data: what comes out otherwise than its configuration may have been meant.
void warn_of_run(const RunConfig& config, const Dataset& data, int64_t steps, const Log& log);
// The part of an engine's options that follows from the configuration.
EngineOptions engine_options(const RunSetup& setup, const PlanOptions& plan,
                             const std::vector<std::filesystem::path>& stores, const Log& log);

// What is known of a run before its store is opened: its configuration with `overrides`, for other commands than train,
// and the folders of its store. Throws ConfigError where none of the store is there, or another run's.
struct FoundRun {
  RunConfig config;
  std::vector<std::filesystem::path> stores;
};
FoundRun find_run(const RunFolder& folder, RunFolder::For what, std::span<const std::string> overrides, const Log& log);

// A finished or interrupted run, opened at its last committed step under its own budgets, with `overrides` of its
// configuration. Throws ConfigError where there is nothing to open.
struct OpenRun {
  RunSetup setup;
  std::unique_ptr<Engine> engine;
  ~OpenRun() { setup.model.leave_memory(); }  // which is the engine's
};
OpenRun open_run(const RunFolder& folder, std::span<const std::string> overrides, const Log& log);

}  // namespace sluice
