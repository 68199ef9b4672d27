#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "app/commands.h"
#include "app/setup.h"
#include "app/tokenizer_files.h"
#include "bench/scratch_folder.h"
#include "core/bytes.h"
#include "core/errors.h"
#include "core/read_file.h"
#include "data/dataset.h"
#include "swap/trim.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;

// Whose files an export would replace, or leave a part of.
void check_target(const fs::path& out, const fs::path& base_model) {
  std::error_code not_there;
  const auto refuse = [&](const char* why) {
    throw ConfigError(fmt::format("{}: {}: export to another folder", out.string(), why));
  };
  if (RunFolder(out).holds() == RunFolder::Holds::kRun)
    refuse("this is the folder of a run, whose config.json would be replaced");
  if (!base_model.empty() && fs::equivalent(out, base_model, not_there))
    refuse("the run began with the model there, which would be replaced");
  if (const auto config = read_text(out / "config.json"); config && !is_export(*config))
    refuse(
        "the config.json there does not say that sluice has exported it (earlier builds wrote none that does), and "
        "would be replaced");
  if (fs::exists(out / "model.safetensors", not_there) && !fs::exists(out / "config.json", not_there))
    refuse("a model.safetensors is there without a config.json, and would be replaced");
  if (fs::exists(out / "tokenizer.json", not_there) && !fs::exists(out / "config.json", not_there))
    refuse("a tokenizer.json is there without a model, and would be replaced");
  if (fs::exists(out / "model.safetensors.index.json", not_there))
    refuse("a model in several files is there, parts of which would stay beside the exported one");
}

// The files of one that was copied there stay: a later export of the same run goes to the same folder.
void say_whose_tokenizer(const fs::path& out, const Log& log) {
  if (!has_tokenizer(out.string())) {
    return say(log, LogLevel::kInfo,
               "the tokenizer that made the run's ids is not known here: copy its files to the model's");
  }
  say(log, LogLevel::kWarning,
      fmt::format(
          "{}: the tokenizer there stays as it is, and must be the one that made the run's ids, which cannot be "
          "had here",
          out.string()));
}

struct Exported {
  const fs::path out;
  const RunFolder& folder;
  const RunSetup& setup;
  const fs::path& base_model;  // empty: the run began with none
};

// The run's own, or of ids the one that lies beside the weights that it began with. What is not there any more keeps no
// weights back.
void add_tokenizer(ExportOptions& options, const Exported& run, const Log& log) {
  const DataOptions& data = run.setup.config.data;
  try {
    if (data.tokenizer == TokenizerKind::kIds) {
      if (!run.base_model.empty()) options.tokenizer = tokenizer_in(run.base_model.string());
      if (options.tokenizer.empty()) {
        say_whose_tokenizer(run.out, log);
      }
      return;
    }
    const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(data, run.folder.data_cache());
    options.end_of_document = tokenizer->end_of_document();
    options.tokenizer = tokenizer_files(*tokenizer, static_cast<int64_t>(run.setup.section.config.n_positions));
  } catch (const Error& error) {
    say(log, LogLevel::kWarning, fmt::format("exported without a tokenizer: {}", error.what()));
    if (has_tokenizer(run.out.string())) say_whose_tokenizer(run.out, log);
  }
}

}  // namespace

void run_export(const ExportCommand& command, Console& console) {
  const RunFolder folder(command.folder);
  const fs::path base_model = folder_in(folder.load(RunFolder::For::kItsModel).model);
  check_target(command.out, base_model);
  OpenRun run = open_run(folder, command.overrides, console.log());
  Engine& engine = *run.engine;
  const bool master = command.values == ExportCommand::Values::kMaster;
  const DType dtype = master ? DType::kFp32 : weights_dtype(run.setup.config.precision);
  const std::span<const Parameter> parameters = engine.geometry().parameters();
  int64_t done = 0;
  const ParameterReader read = [&](int parameter, std::span<std::byte> into) {
    if (master) {
      engine.read_master(parameter, 0, {reinterpret_cast<float*>(into.data()), into.size() / sizeof(float)});
    } else {
      engine.read(parameter, into);
    }
    done += parameters[parameter].elements;
    console.progress(done, engine.geometry().parameter_elements(), "exporting");
  };
  ExportOptions options{.folder = command.out, .dtype = dtype, .end_of_document = {}, .tokenizer = {}};
  add_tokenizer(options, {command.out, folder, run.setup, base_model}, console.log());
  FoldersGoneOnSignals made;  // an export that is ended leaves no empty folder behind
  made.make(command.out, "name another folder");
  export_hugging_face(options, run.setup.model, read);
  console.finish_progress();
  std::string names;
  for (const NamedFile& file : options.tokenizer) names += ", " + file.name;
  console.print(fmt::format("{}: config.json{} and model.safetensors, {} parameters in {} after step {}", command.out,
                            names, engine.geometry().parameter_elements(), name_of(dtype), engine.step()));
}

namespace {

// A drive that is not mounted would keep its part, which could not be trimmed later: the first drive alone tells
// whether a run in another folder has gone on with the store.
void check_drives_of_trimmed(const RunFolder& folder, const std::vector<fs::path>& stores) {
  if (find_store(stores) == StoreExists::kNo) return;
  const std::vector<fs::path> missing = find_parts(stores, folder.store_number()).missing;
  if (missing.empty()) return;
  std::vector<std::string> words;
  for (const fs::path& file : missing)
    words.push_back(file.string() + (is_there(file) ? " (what lies there is another drive's)" : ""));
  const bool first = find_store(stores.front()) == StoreExists::kNo;
  throw ConfigError(
      fmt::format("{}: {} {} not there{}: bring it back (is its drive mounted?), or, where it is gone, remove by hand "
                  "what is left in {}",
                  folder.path().string(), fmt::join(words, ", "), words.size() == 1 ? "is" : "are",
                  first ? ", and the first drive alone tells whether a run in another folder has gone on with it" : "",
                  joined(stores)));
}

}  // namespace

void run_trim(const TrimCommand& command, Console& console) {
  const RunFolder folder(command.folder);
  const std::vector<std::filesystem::path> stores = folder.stores(folder.load(RunFolder::For::kItsStore));
  if (const std::optional<std::filesystem::path> original = folder.copied_from(stores)) {
    throw ConfigError(
        fmt::format("{}: is a copy of the run in {}, whose store in {} it would remove: trim that one, or remove this "
                    "folder by hand",
                    command.folder, original->string(), joined(stores)));
  }
  check_drives_of_trimmed(folder, stores);
  folder.refuse_if_elsewhere(stores);
  if (find_store(stores) == StoreExists::kYes) folder.check_claim(stores, console.log());
  if (command.consent == TrimCommand::Consent::kNotGiven) {
    throw ConfigError(
        fmt::format("{}: without its store in {} the run can neither be resumed nor exported nor generated from; "
                    "export what is to be kept, and say --yes",
                    command.folder, joined(stores)));
  }
  const std::vector<TrimmedStore> trimmed = trim_stores(stores, folder.store_number());
  for (const auto& [store, freed] : trimmed)
    console.print(fmt::format("{}: {} ({} bytes) given back", store.string(), format_bytes(freed), freed));
  for (const std::filesystem::path& store : stores) {
    if (std::ranges::find(trimmed, store, &TrimmedStore::folder) != trimmed.end()) continue;
    say(console.log(), LogLevel::kWarning,
        fmt::format("{}: a trim that was cut short has removed its part before", store.string()));
  }
}

}  // namespace sluice
