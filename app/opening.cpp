#include "app/opening.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/setup.h"
#include "core/errors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

RunFolder folder_of(const TrainOptions& options) {
  if (!options.out.empty()) return RunFolder(absolute_text(options.out));
  return RunFolder(absolute_text(default_run_folder(options.config)));
}

RunConfig read_config(const TrainOptions& options) {
  RunConfig config = load_config(options.config, options.overrides);
  if (options.data) config.data.path = *options.data;
  if (options.seed) config.seed = options.seed;
  if (!options.trace.empty()) config.sluice.trace = options.trace;
  make_paths_absolute(config);
  return config;
}

// In the place of the store's file is something else, or one whose header is damaged.
bool is_no_store(const fs::path& store) {
  std::error_code ignored;
  const fs::path file = store_path(store, 0);
  if (!fs::exists(file, ignored) || fs::is_directory(file, ignored)) return false;
  const bool is_begun = fs::is_regular_file(file, ignored) && fs::is_empty(file, ignored);
  return !is_begun && !RecordStore::store_number(store);
}

// What keeps a run from being begun, and what to do about it.
std::string in_the_way(const RunFolder& folder, RunFolder::Holds holds, const fs::path& store, StoreExists there) {
  const bool run = holds == RunFolder::Holds::kRun;
  std::error_code ignored;
  const fs::path file = store_path(store, 0);
  if (!run && fs::is_directory(file, ignored)) {
    return fmt::format("{}: a folder of that name is there: move it away, or give another folder", file.string());
  }
  if (!run && is_no_store(store)) {
    return fmt::format(
        "{}: what is there cannot be read as a store: give another folder, or replace it with --overwrite",
        file.string());
  }
  if (there == StoreExists::kYes && (run || store == folder.path())) {
    return fmt::format("{}: a run's store is there; continue it with --resume, or begin again with --overwrite",
                       store.string());
  }
  if (run) {
    return fmt::format(
        "{}: a run is there, and its store is not in {}: bring that back and continue with --resume, or begin again "
        "with --overwrite",
        folder.path().string(), store.string());
  }
  return fmt::format(
      "{}: a run's store is there, and no run in {}: name another folder in sluice.nvme, or continue that run with "
      "--resume and its own --out; --overwrite begins again in its place",
      store.string(), folder.path().string());
}

// A link may lead anywhere: to a store of sluice on another drive, or to what somebody else needs.
void refuse_links_to_no_store(const std::vector<fs::path>& stores) {
  for (const fs::path& store : stores) {
    const fs::path file = store_path(store, 0);
    std::error_code ignored;
    if (!fs::is_symlink(file, ignored) || !is_no_store(store)) continue;
    throw ConfigError(
        fmt::format("{}: leads to {}, which cannot be read as a store and is not replaced: remove the link, or what it "
                    "leads to, or name another folder",
                    file.string(), fs::weakly_canonical(file, ignored).string()));
  }
}

// What is replaced beside the run's own store, and what of it is not.
void say_what_goes(const RunFolder& folder, RunFolder::Holds holds, const std::vector<fs::path>& stores,
                   const Log& log) {
  const bool run = holds == RunFolder::Holds::kRun, elsewhere = folder.has_gone_on_elsewhere(stores);
  const auto is_its_own = [&](const fs::path& store) {
    const std::optional<uint64_t> own = folder.store_number(), number = RecordStore::store_number(store);
    return run && own && number.value_or(*own) == *own;
  };
  for (const fs::path& store : stores) {
    if (find_store(store) == StoreExists::kNo) continue;
    if (is_no_store(store)) {
      say(log, LogLevel::kWarning,
          fmt::format("{}: what is there is to be replaced; it cannot be read as a store",
                      store_path(store, 0).string()));
      continue;
    }
    if (const std::optional<fs::path> original = folder.copied_from({&store, 1})) {
      say(log, LogLevel::kWarning,
          fmt::format("{}: the store there is to be replaced, and is that of the run in {}, of which {} is a copy: to "
                      "keep it, stop this one and name another folder in sluice.nvme",
                      store.string(), original->string(), folder.path().string()));
      continue;
    }
    if (elsewhere) {
      say(log, LogLevel::kWarning,
          fmt::format(
              "{}: the store there is to be replaced, and a run in another folder has gone on with it, of which {} "
              "is a copy, or which is a copy of that: to keep it, stop this one and name another folder in "
              "sluice.nvme",
              store.string(), folder.path().string()));
      continue;
    }
    if (store == folder.path() || is_its_own(store)) continue;
    say(log, LogLevel::kWarning,
        fmt::format("{}: the store there is to be replaced; it belongs to no run in {}", store.string(),
                    folder.path().string()));
  }
  if (!run) return;
  try {
    for (const fs::path& before : folder.stores(folder.load(RunFolder::For::kItsStore))) {
      if (std::ranges::find(stores, before) != stores.end() || find_store(before) == StoreExists::kNo) continue;
      if (folder.copied_from({&before, 1})) continue;  // it is that run's
      say(log, LogLevel::kWarning,
          fmt::format("{}: the store of the run that is replaced stays there; once the new run has begun, remove it to "
                      "have its room back",
                      store_path(before, 0).string()));
    }
  } catch (const Error& unknown) {  // no reason not to begin again
    say(log, LogLevel::kWarning,
        fmt::format("where the store of the run that is replaced lies cannot be told: {}", unknown.what()));
  }
}

// Decides between creating, replacing and resuming.
OpenMode choose_mode(const TrainOptions& options, const RunFolder& folder, const std::vector<fs::path>& stores,
                     const Log& log) {
  const RunFolder::Holds holds = folder.holds();
  const auto first =
      std::ranges::find(stores, StoreExists::kYes, [](const fs::path& store) { return find_store(store); });
  const bool there = first != stores.end(), run = holds == RunFolder::Holds::kRun;
  const StoreExists found = there ? StoreExists::kYes : StoreExists::kNo;
  const fs::path& store = there ? *first : stores.front();
  // A run's configuration is written after its first commit: a store without one never came to a step.
  if (options.open == OpenMode::kResume && run) return OpenMode::kOpen;
  if (options.from_step && !there) {
    throw ConfigError(
        fmt::format("{}: no run is there that could go on from step {}; leave out --from-step to begin one",
                    folder.path().string(), *options.from_step));
  }
  if (options.open == OpenMode::kCreate && (there || run)) throw ConfigError(in_the_way(folder, holds, store, found));
  if (options.open == OpenMode::kOverwrite) {
    refuse_links_to_no_store(stores);
    say_what_goes(folder, holds, stores, log);
  }
  if (options.open == OpenMode::kResume && !there) {
    say(log, LogLevel::kWarning, fmt::format("{}: no store to resume; starting from the beginning", store.string()));
    return OpenMode::kCreate;
  }
  return options.open;
}

// An argument for a shell that names these folders, whatever is in their names.
std::string named_by(const std::vector<fs::path>& stores) {
  Json names = Json::array();
  for (const fs::path& store : stores) names.push_back(store.string());
  std::string quoted = "'";
  for (const char letter : "sluice.nvme=" + names.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  return quoted + "'";
}

void check_resumed_store(const RunConfig& before, const RunFolder& folder, const std::vector<fs::path>& stores) {
  const std::vector<fs::path> stores_before = folder.stores(before);
  if (find_store(stores) == StoreExists::kYes && stores.size() == stores_before.size()) return check_each_drive(stores);
  if (find_store(stores_before) == StoreExists::kYes) {
    throw ConfigError(fmt::format("{}: the run's store is in {} and not in {}: say so with --set {}",
                                  folder.path().string(), joined(stores_before), joined(stores),
                                  named_by(stores_before)));
  }
  folder.refuse_without_store(stores_before);
}

// Its steps would go into the store of the run that was copied.
void check_no_copy(const RunFolder& folder, const std::vector<fs::path>& stores) {
  const std::optional<fs::path> original = folder.copied_from(stores);
  if (!original) return;
  throw ConfigError(fmt::format(
      "{}: is a copy of the run in {}, and the store in {} is that run's: go on there (--out {}), or move "
      "that folder away if the run is to live in this one; a second run needs a copy of the store, named with "
      "--set 'sluice.nvme=[\"FOLDER\", ...]'",
      folder.path().string(), original->string(), joined(stores), original->string()));
}

// What a run leaves out when it is resumed, it takes from its folder: the seed and the data of its first command, the
// threads and the tiles of the loss among which sums are divided, and the shape of a model whose weights came from a
// Hugging Face folder.
void take_over(Opening& opening, const Log& log) {
  RunConfig& config = opening.config;
  const RunConfig& before = *opening.before;
  if (!config.seed) config.seed = before.seed;
  if (config.sluice.compute_threads == 0) config.sluice.compute_threads = before.sluice.compute_threads;
  if (config.sluice.loss_tile_tokens == 0) config.sluice.loss_tile_tokens = before.sluice.loss_tile_tokens;
  if (config.data.path.empty()) config.data.path = before.data.path;
  if (config.data.path == before.data.path) opening.cache = CacheUse::kWithoutText;
  const Json now = Json::parse(config.model);
  Json model = Json::parse(before.model);
  const std::string from = model.value("path", std::string());
  opening.model_folder = from;
  if (!now.contains("path")) return;
  if (now["path"] == from) {
    model.update(now);
    config.model = without_folder(model.dump());
    return;
  }
  say(log, LogLevel::kWarning,
      fmt::format(
          "not needed: \"model.path\": no weights are read from {}: the run goes on with its own, which were {}",
          now["path"].dump(), from.empty() ? "random at first" : "those of " + from));
}

}  // namespace

Opening open_folder(const TrainOptions& options, const Log& log) {
  Opening opening{.folder = folder_of(options), .config = read_config(options)};
  const RunFolder& folder = opening.folder;
  const RunFolder::Holds holds = folder.holds();
  if (holds == RunFolder::Holds::kOther) {
    throw ConfigError(
        fmt::format("{}: the {} there is not a run's, and would be replaced: give another folder with --out",
                    folder.path().string(), folder.config_file().filename().string()));
  }
  const fs::path trace = opening.config.sluice.trace;
  const auto is_in_store = [&](const fs::path& store) {
    return trace.extension() == ".swap" && RunFolder(store).is_own(trace);
  };
  if (folder.is_own(trace) || std::ranges::any_of(opening.stores(), is_in_store)) {
    throw ConfigError(fmt::format("{}: the run writes a file of that name itself: name another one for the trace",
                                  opening.config.sluice.trace));
  }
  std::error_code ignored;
  if (fs::is_directory(folder.path(), ignored)) opening.lock = folder.lock();
  folder.check_files();
  opening.mode = choose_mode(options, folder, opening.stores(), log);
  if (opening.mode == OpenMode::kOpen) {
    opening.before = folder.load(RunFolder::For::kTraining);
    check_resumed_store(*opening.before, folder, opening.stores());
    folder.check_store(opening.stores());
    check_no_copy(folder, opening.stores());
    folder.refuse_if_elsewhere(opening.stores());
    folder.check_claim(opening.stores(), log);
    take_over(opening, log);
  }
  return opening;
}

void check_own_store(const Opening& opening, int64_t step) {
  if (opening.mode == OpenMode::kOpen) {  // again: it is locked since
    opening.folder.check_store(opening.stores());
    opening.folder.refuse_if_elsewhere(opening.stores());
  }
  if (opening.mode != OpenMode::kResume || step == 0) return;
  const std::optional<uint64_t> own = opening.folder.store_number();
  if (own && own == RecordStore::store_number(opening.stores().front())) {
    throw ConfigError(
        fmt::format("{}: the run's {} is gone, its store is at step {}: bring the file back, "
                    "or begin again with --overwrite",
                    opening.folder.path().string(), opening.folder.config_file().filename().string(), step));
  }
  throw ConfigError(fmt::format(
      "{}: the store there has come to step {} and is another run's, since {} has no {}: name another folder "
      "in sluice.nvme, resume that run with its own --out, or begin again with --overwrite",
      opening.stores().front().string(), step, opening.folder.path().string(),
      opening.folder.config_file().filename().string()));
}

}  // namespace sluice
