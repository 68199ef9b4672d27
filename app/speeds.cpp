#include "app/speeds.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "app/console.h"
#include "app/machine_file.h"
#include "app/store_words.h"
#include "core/errors.h"
#include "core/topology.h"
#include "engine/machine_probe.h"
#include "offload/gpu.h"
#include "swap/drive_folders.h"
#include "swap/drive_wear.h"
#include "swap/store_drives.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// The block device below a folder, which may be a volume, or the number of its file system where none is named.
std::string device_of(const fs::path& folder) {
  const DriveWear wear = read_drive_wear(folder);
  if (wear.device.empty()) return fmt::format("file system {}", wear.file_system);
  return wear.volume.empty() ? wear.device : wear.volume;
}

std::string key_of(const RunSetup& setup, const std::vector<fs::path>& folders) {
  const auto topology = make_topology();
  const SluiceConfig& sluice = setup.config.sluice;
  Json key = {{"probe", kMachineProbeVersion},
              {"cpu", topology->cpu_name()},
              {"cores", usable_cores(*topology)},
              {"drives", Json::array()}};
  for (const fs::path& folder : folders) key["drives"].push_back(device_of(folder));
  key["io"] = {{"backend", name_of(sluice.io_backend)}, {"block", sluice.io_block_bytes}, {"depth", sluice.io_depth}};
  if (setup.device == DeviceKind::kCuda) {
    const Gpu gpu = first_gpu();
    key["gpu"] = {{"name", gpu.name}, {"at", gpu.pci_address}};
  }
  key["update_threads"] = sluice.update_threads;
  key["compute_threads"] = sluice.compute_threads;
  key["precision"] = name_of(setup.config.precision);
  key["state_dtype"] = name_of(sluice.state_dtype);
  key["optimizer"] = static_cast<int>(setup.config.optimizer.kind);
  return key.dump();
}

// A store that is there keeps its weights, however fast its drives are by now. Empty: none is there, or it is on one
// drive, or its drive gives nothing, which whoever opens it will tell.
std::vector<uint32_t> weights_in(const std::vector<fs::path>& folders) {
  if (folders.size() < 2) return {};
  try {
    return stored_weights(folders).value_or(std::vector<uint32_t>());
  } catch (const IoError&) {
    return {};
  }
}

// This machine's speeds for a run, and where they are kept.
class ThisMachine {
 public:
  ThisMachine(const RunSetup& setup, const SpeedsWanted& wanted, const Log& log)
      : setup_(setup), drives_(wanted.drives), log_(log) {
    for (const fs::path& folder : wanted.folders) folders_.push_back(existing_part(folder));
    if (drives_ == DriveFigures::kOfStoreThere) weights_ = weights_in(wanted.folders);
    key_ = key_of(setup, folders_);
  }

  std::optional<MachineSpeeds> speeds() {
    const auto kept = cache_.find(key_);
    const std::optional<MachineSpeeds> found = kept ? kept->speeds : measured();
    if (!found) return std::nullopt;
    constexpr std::chrono::hours kServes{1};
    const bool is_old = kept && (kept->age > kServes || kept->age < -kServes);
    const bool serves = !kept || (!is_old && drives_ != DriveFigures::kMeasuredNow);
    return serves && weights_.empty() ? found : with_drives_measured(*found);
  }

 private:
  StoreOptions store() const {
    StoreOptions options = engine_options(setup_, plan_options(setup_, {}), folders_, {}).store;
    options.words = &kDriveWords;
    return options;
  }

  std::optional<MachineSpeeds> measured() {
    const PlanOptions plan = plan_options(setup_, {});
    say(log_, LogLevel::kInfo, "measuring this machine's drives, links and kernels, once for runs of this kind");
    try {
      const MachineSpeeds speeds = probe_machine({.store = store(),
                                                  .format = plan.format(),
                                                  .gradient_dtype = plan.gradient_dtype,
                                                  .kind = setup_.config.optimizer.kind,
                                                  .update_threads = setup_.config.sluice.update_threads,
                                                  .compute_threads = setup_.config.sluice.compute_threads,
                                                  .device = setup_.device});
      speeds.validate();
      const std::string file = cache_.file(key_).string();
      say(log_, LogLevel::kInfo,
          cache_.keep(key_, speeds)
              ? fmt::format("kept in {}; remove it to measure again", file)
              : fmt::format("not kept, since {} cannot be written: each start measures again (XDG_CACHE_HOME names "
                            "another folder)",
                            file));
      return speeds;
    } catch (const Error& error) {
      say(log_, LogLevel::kWarning, fmt::format("no step time is predicted: {}", error.what()));
      return std::nullopt;
    }
  }

  MachineSpeeds with_drives_measured(const MachineSpeeds& kept) {
    say(log_, LogLevel::kInfo,
        weights_.empty() ? "measuring the drives again, whose speed changes with what else they do"
                         : "measuring the drives with the shares that the store there gives them");
    try {
      MachineSpeeds speeds = kept;
      StoreOptions with = store();
      with.drive_weights = weights_;
      probe_drives(with, speeds);
      speeds.validate();
      if (weights_.empty()) cache_.keep(key_, speeds);  // else they are this store's
      return speeds;
    } catch (const Error& error) {
      say(log_, LogLevel::kWarning, fmt::format("the drives' speeds are those kept before: {}", error.what()));
      return kept;
    }
  }

  const RunSetup& setup_;
  DriveFigures drives_;
  const Log& log_;
  std::vector<fs::path> folders_;
  std::vector<uint32_t> weights_;  // of the drives; empty: as their speeds
  std::string key_;
  MachineCache cache_;
};

// As bench/step_bench.h waits, using no CPU.
std::vector<VisitTime> waiting_visits(const RunSetup& setup, double ms) {
  std::vector<VisitTime> visits(setup.model.spec().visits.size(), {.forward_ms = ms, .backward_ms = 3 * ms});
  visits.back().backward_ms = 4 * ms;
  return visits;
}

std::optional<int64_t> critical_tokens(const Prediction& prediction, int64_t tokens_of_micro_batch) {
  if (!prediction.critical_micro_batches) return std::nullopt;
  const double tokens = *prediction.critical_micro_batches * static_cast<double>(tokens_of_micro_batch);
  return tokens < 0x1p62 ? std::optional(std::llround(tokens)) : std::nullopt;
}

}  // namespace

MachineSpeeds with_drives(MachineSpeeds machine, int drives) {
  if (machine.drives == 0) return machine;
  machine.scale_drives(static_cast<double>(drives) / machine.drives);
  machine.drives = drives;
  return machine;
}

std::optional<StepSpeeds> find_speeds(RunSetup& setup, const WorkspaceNeed& workspace, const SpeedsWanted& wanted,
                                      const Log& log) {
  const int drives = wanted.drive_count > 0 ? wanted.drive_count : static_cast<int>(wanted.folders.size());
  // Timed before the drives are measured, which are busy for a while once their scratch files are gone.
  std::vector<VisitTime> visits;
  if (wanted.waiting_ms) {
    visits = waiting_visits(setup, *wanted.waiting_ms);
  } else if (wanted.machine && wanted.machine->compute_tflop_per_s > 0) {
    visits = setup.model.estimate_visits(wanted.machine->compute_tflop_per_s);
  } else if (auto timed = time_visits(setup, workspace, log)) {
    visits = std::move(*timed);
  } else {
    return std::nullopt;
  }
  const std::optional<MachineSpeeds> machine =
      wanted.machine ? with_drives(*wanted.machine, drives) : ThisMachine(setup, wanted, log).speeds();
  if (!machine) return std::nullopt;
  StepSpeeds speeds{.machine = *machine, .visits = std::move(visits)};
  if (wanted.waiting_ms) speeds.machine.compute_cores = 0;
  return speeds;
}

int64_t tokens_of_micro_batch(const RunSetup& setup) {
  return setup.config.batch.micro * setup.config.data.sequence_length;
}

std::string digits_of(double value) { return fmt::format(fmt::runtime(value < 1 ? "{:.2g}" : "{:.1f}"), value); }

std::string prediction_words(const Prediction& prediction, int64_t tokens_of_micro_batch, CriticalOf of) {
  std::string text = fmt::format("predicted    {} ms{} a step; alone", digits_of(prediction.step_ms),
                                 duration_beside(prediction.step_ms / 1e3));
  auto out = std::back_inserter(text);
  for (int i = 0; i < kLaneGroupCount; ++i) {
    const auto group = static_cast<LaneGroup>(i);
    fmt::format_to(out, "{} {} {}", i == 0 ? "" : ",", name_of(group), digits_of(prediction.alone(group)));
  }
  const Busiest busiest = prediction.busiest();
  fmt::format_to(out, " ms{} {}\n", busiest.binds() ? ":" : ";", binding_words(busiest));
  if (prediction.clipped_ms) {
    fmt::format_to(out, "             {} ms where the clip engages\n", digits_of(*prediction.clipped_ms));
  }
  const auto tokens = critical_tokens(prediction, tokens_of_micro_batch);
  const char* const homes = of == CriticalOf::kTheseHomes ? "homes as they are, " : "";
  if (tokens) {
    const char* const compute = busiest.binds() ? "compute binds" : "compute takes longest";
    const std::string where = *tokens > 1 ? fmt::format("where a step has more than {} tokens", *tokens)
                                          : std::string("with any number of tokens a step");
    fmt::format_to(out, "             {}{} {}\n", homes, compute, where);
  } else if (prediction.binding != LaneGroup::kCompute) {
    fmt::format_to(out, "             {}compute binds with no number of tokens a step{}\n", homes,
                   of == CriticalOf::kPlans ? " that these budgets hold" : "");
  }
  return text;
}

std::string prediction_json(const Prediction& prediction, int64_t tokens_of_micro_batch) {
  Json json = {{"step_ms", prediction.step_ms},
               {"clipped_step_ms", prediction.clipped_ms ? Json(*prediction.clipped_ms) : Json(nullptr)},
               {"binding", name_of(prediction.binding)},
               {"alone_ms", Json::object()},
               {"busy_ms", Json::object()}};
  for (int i = 0; i < kLaneGroupCount; ++i) {
    const auto group = static_cast<LaneGroup>(i);
    json["alone_ms"][std::string(name_of(group))] = prediction.alone(group);
  }
  for (int i = 0; i < kLaneCount; ++i) {
    const auto lane = static_cast<Lane>(i);
    json["busy_ms"][std::string(name_of(lane))] = prediction.busy(lane);
  }
  const auto tokens = critical_tokens(prediction, tokens_of_micro_batch);
  json["critical_tokens"] = tokens ? Json(*tokens) : Json(nullptr);
  return json.dump();
}

}  // namespace sluice
