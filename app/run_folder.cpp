#include "app/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/checksum.h"
#include "core/errors.h"
#include "core/pending_file.h"
#include "core/read_file.h"
#include "data/dataset.h"
#include "swap/drive.h"
#include "swap/record_store.h"

namespace sluice {
namespace {

using SortedJson = nlohmann::json;
using Json = nlohmann::ordered_json;  // as written
constexpr const char* kChecksum = "crc32c";
namespace fs = std::filesystem;

// Lists are values.
void add_keys(const SortedJson& value, const std::string& path, SortedJson& keys) {
  if (!value.is_object()) {
    keys[path] = value;
    return;
  }
  for (const auto& [name, inner] : value.items()) add_keys(inner, path + "/" + name, keys);
}

SortedJson flat_keys(const SortedJson& object) {
  SortedJson keys = SortedJson::object();
  add_keys(object, "", keys);
  return keys;
}

// What decides on which numbers are trained, key by key ("/data/shuffle").
SortedJson deciding_keys(const RunConfig& config) {
  SortedJson all = SortedJson::parse(to_json(config));
  all["data"].erase("path");
  for (const char* key : {"path", "bos_token_id", "eos_token_id"}) all["model"].erase(key);  // ids that are exported
  if (config.data.tokenizer == TokenizerKind::kByte)
    all["data"].erase("vocab_size");  // it has 256 ids, whatever this says
  if (!all["model"].contains("tiling")) all["model"]["tiling"] = {{"linear", 1}, {"embedding", 1}};
  SortedJson kept = SortedJson::object();
  for (const char* key : {"model", "data", "seed", "train_batch_size", "bf16"}) kept[key] = all[key];
  kept["fp16"]["enabled"] = all["fp16"]["enabled"];  // the loss scale may be chosen anew
  return flat_keys(kept);
}

// Of what a run takes from its folder and that decides on numbers, as the file has it: of the model, and of training.
Json checksums_of(const SortedJson& file) {
  const auto part = [&](std::initializer_list<const char*> pointers) {
    SortedJson kept;
    for (const char* pointer : pointers) {
      const SortedJson::json_pointer at(pointer);
      if (file.contains(at)) kept[pointer] = file[at];
      if (kept[pointer].is_object()) kept[pointer].erase("path");
    }
    return fmt::format("{:08x}", crc32c(0, kept.dump()));
  };
  return {{"model", part({"/model", "/bf16/enabled", "/fp16/enabled"})},
          {"training",
           part({"/data", "/seed", "/train_batch_size", "/sluice/compute_threads", "/sluice/loss_tile_tokens"})}};
}

// What a run has written down of its store; empty where it has not.
struct Claim {
  bool is_lost = false;  // the file is there, and nothing in it can be understood
  std::optional<uint64_t> number;
  std::vector<uint32_t> openers;  // the numbers under which it has opened it
  std::optional<std::string> run;
};

Claim claim_in(const fs::path& file) {
  const std::optional<std::string> text = read_file(file);
  Claim claim;
  if (!text) return claim;
  const SortedJson json = SortedJson::parse(*text, nullptr, false);
  claim.is_lost = !json.is_object();
  if (claim.is_lost) return claim;
  const SortedJson number = json.value("number", SortedJson()), run = json.value("run", SortedJson());
  claim.is_lost = !number.is_number_unsigned();
  if (!claim.is_lost && number != 0u) claim.number = number.get<uint64_t>();  // 0: it could not be read once
  if (run.is_string()) claim.run = run.get<std::string>();
  for (const SortedJson& opener : json.value("openers", SortedJson())) {
    if (opener.is_number_unsigned()) claim.openers.push_back(opener.get<uint32_t>());
  }
  return claim;
}

std::string key_path(std::string pointer) {
  pointer.erase(0, 1);
  for (char& c : pointer) c = c == '/' ? '.' : c;
  return pointer;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (!error) return;
  throw IoError({.action = "remove",
                 .path = path.string(),
                 .error_number = error.value(),
                 .advice = "make the folder writable, or give another one with --out"});
}

}  // namespace

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

// As a store's own, which runs that name other drives do not meet (swap/drive.cpp). Where a file system locks no
// folders there is none.
FolderLock RunFolder::lock() const {
  FolderLock held(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held.is_held()) {
    throw IoError({.action = "open",
                   .path = folder_.string(),
                   .error_number = errno,
                   .advice = "make the folder readable, or give another one with --out"});
  }
  if (lock_file(held.file()) == EWOULDBLOCK) {
    throw ConfigError(
        fmt::format("the folder {} is in use by another run: wait until that has ended; a new run needs another "
                    "folder",
                    folder_.string()));
  }
  struct stat ours {};
  struct stat there {};
  const bool is_there = stat(folder_.c_str(), &there) == 0;
  if (fstat(held.file(), &ours) == 0 && (!is_there || ours.st_ino != there.st_ino || ours.st_dev != there.st_dev)) {
    throw ConfigError(fmt::format(
        "{}: a run that was refused took its folder away in this moment; start this one again", folder_.string()));
  }
  return held;
}

std::vector<fs::path> RunFolder::files() const {
  return {config_file(),
          metrics_file(),
          timeline_file(),
          would_help_file(),
          store_number_file(),
          tokens_file(data_cache()),
          tokenizer_file(data_cache())};
}

void RunFolder::check_files() const {
  const auto check_access = [](const fs::path& path, int how, const char* advice) {
    if (access(path.c_str(), how) == 0 || errno == ENOENT || errno == ENOTDIR) return;
    throw IoError({.action = "opening for writing",
                   .path = path.string(),
                   .error_number = errno,
                   .advice = fmt::format("{}, or give another folder with --out", advice)});
  };
  std::error_code error;
  if (!fs::is_directory(folder_, error)) return;  // to be made
  check_access(folder_, W_OK | X_OK, "make the folder writable");
  check_access(metrics_file(), R_OK | W_OK, "make it readable and writable");
  for (const fs::path& file : files()) {
    const fs::file_status found = fs::status(file, error);
    if (!fs::exists(found) || fs::is_regular_file(found)) continue;
    throw ConfigError(fmt::format(
        "{}: is no file, and a run writes one of that name: move it away, or give another folder with --out",
        file.string()));
  }
}

std::vector<fs::path> RunFolder::stores(const RunConfig& config) const {
  if (config.sluice.nvme.empty()) return {folder_};
  return {config.sluice.nvme.begin(), config.sluice.nvme.end()};
}

fs::path default_run_folder(const std::string& config) { return fs::path("runs") / fs::path(config).stem(); }

std::vector<fs::path> store_drives(const RunConfig& config) { return RunFolder(fs::current_path()).stores(config); }

RunFolder::Holds RunFolder::holds() const {
  const std::optional<std::string> text = read_file(config_file());  // whatever it holds: it may be damaged
  if (!text) return Holds::kNothing;
  const SortedJson config = SortedJson::parse(*text, nullptr, false);
  return config.is_object() && !config.contains("sluice") ? Holds::kOther : Holds::kRun;
}

// `train` replaces no file that is not a run's.
void RunFolder::refuse_without_run(Holds held) const {
  const std::string name = config_file().filename().string();
  const bool is_other = held == Holds::kOther;
  if (store_number() || find_store(folder_) == StoreExists::kYes) {
    throw ConfigError(fmt::format(
        "{}: {}, and other files of one are there: {}begin again with train --overwrite", folder_.string(),
        is_other ? fmt::format("the {} there is not a run's", name) : fmt::format("the run's {} is gone", name),
        is_other ? "put the run's in its place, or move it away and " : "bring that back, or "));
  }
  throw ConfigError(fmt::format("{}: no run is there ({} is {}); train one with `sluice train CONFIG --out {}`",
                                folder_.string(), name, is_other ? "not a run's" : "missing",
                                is_other ? "FOLDER" : folder_.string()));
}

RunConfig RunFolder::load(For what, std::span<const std::string> overrides) const {
  const Holds held = holds();
  if (held != Holds::kRun) refuse_without_run(held);
  const std::string name = config_file().string(), text = read_file(config_file()).value_or("");
  Json object = Json::parse(text, nullptr, false);
  if (object.is_discarded()) {
    throw ConfigError(fmt::format(
        "{}: is damaged: no JSON as a run writes it: bring the file back, or begin again with train --overwrite",
        name));
  }
  if (!object.is_object() || !object.contains(kChecksum)) return parse_config(text, name, overrides);
  const Json written = object[kChecksum], now = checksums_of(SortedJson::parse(text));
  object.erase(kChecksum);
  const auto differs = [&](const char* part) {
    return !written.is_object() || written.value(part, Json()) != now[part];
  };
  const bool model = what != For::kItsStore && differs("model"),
             training = what == For::kTraining && differs("training");
  if (model || training) {
    throw ConfigError(fmt::format(
        "{}: has been damaged or changed: {} there is not what the run was trained with, by its checksum: bring the "
        "file back, or begin again with train --overwrite",
        name, model ? "the model or its precision" : "data, seed, batch, compute_threads or loss_tile_tokens"));
  }
  return parse_config(object.dump(2), name, overrides);
}

void RunFolder::save(const RunConfig& config) const {
  const std::string text = to_json(config);
  Json object = Json::parse(text);
  object[kChecksum] = checksums_of(SortedJson::parse(text));
  PendingFile file(config_file());
  file.append(object.dump(2) + "\n");
  file.publish();
}

void RunFolder::save_would_help(const std::string& json) const {
  if (json.empty()) return remove_file(would_help_file());
  PendingFile file(would_help_file());
  file.append(json + "\n");
  file.publish();
}

void RunFolder::forget() const {
  remove_file(config_file());
  remove_file(store_number_file());
}

void RunFolder::claim_store(const std::vector<fs::path>& stores, uint32_t opener) const {
  const std::optional<uint64_t> number = RecordStore::store_number(stores.front());
  if (!number) return remove_file(store_number_file());  // the file has gone meanwhile: nothing will be committed to it
  const Claim before = claim_in(store_number_file());
  std::vector<uint32_t> openers = number == before.number ? before.openers : std::vector<uint32_t>();
  if (std::ranges::find(openers, opener) == openers.end()) openers.push_back(opener);
  PendingFile file(store_number_file());
  const SortedJson claim = {{"number", *number}, {"openers", openers}, {"run", fs::canonical(folder_).string()}};
  // A link may lead to a folder whose name JSON cannot hold: such a run is taken for one that was moved.
  file.append(claim.dump(-1, ' ', false, SortedJson::error_handler_t::replace) + "\n");
  file.publish();
}

std::optional<uint64_t> RunFolder::store_number() const { return claim_in(store_number_file()).number; }

std::optional<fs::path> RunFolder::copied_from(std::span<const fs::path> stores) const {
  const Claim claim = claim_in(store_number_file());
  if (!claim.run) return std::nullopt;
  const RunFolder claimed(*claim.run);
  std::error_code error;
  if (fs::equivalent(claimed.path(), folder_, error)) return std::nullopt;
  try {
    if (claimed.holds() != Holds::kRun) return std::nullopt;
    if (claim.number && claimed.store_number().value_or(*claim.number) != *claim.number) return std::nullopt;
    return claimed.may_have_store_in(stores) ? std::optional(claimed.path()) : std::nullopt;
  } catch (const Error&) {  // it may not be looked into
    return std::nullopt;
  }
}

// By the files themselves: a copy may have been made of links.
bool RunFolder::may_have_store_in(std::span<const fs::path> folders) const {
  try {
    const std::vector<fs::path> own = stores(load(For::kItsStore));
    return std::ranges::any_of(folders, [&](const fs::path& folder) {
      return std::ranges::any_of(own, [&folder](const fs::path& one) {
        std::error_code not_there;
        return fs::equivalent(store_path(one, 0), store_path(folder, 0), not_there);
      });
    });
  } catch (const ConfigError&) {
    return find_store(folders) == StoreExists::kYes;
  }
}

// Where the store is an older one, from a backup, whoever was its last opener is known too.
bool RunFolder::has_gone_on_elsewhere(std::span<const fs::path> stores) const {
  const std::optional<uint64_t> own = store_number();
  if (!own || RecordStore::store_number(stores.front()) != own) return false;
  const uint32_t last = RecordStore::last_opener(stores.front()).value_or(0);
  const Claim claim = claim_in(store_number_file());  // after the store: a run that begins beside this writes it before
  return last != 0 && std::ranges::find(claim.openers, last) == claim.openers.end();
}

void RunFolder::refuse_if_elsewhere(std::span<const fs::path> stores) const {
  if (!has_gone_on_elsewhere(stores)) return;
  throw ConfigError(fmt::format(
      "{}: a run in another folder, of which one is a copy of the other, has opened the store in {} to train on it "
      "since this one did: use that one; to use this one all the same (that one is gone, this folder comes from a "
      "backup, or the store is a copy that was made later than the folder), remove {}",
      folder_.string(), joined(stores), store_number_file().string()));
}

std::string RunFolder::lost_claim_words(std::span<const fs::path> stores) const {
  if (!claim_in(store_number_file()).is_lost) return "";
  return fmt::format(
      "{}: nothing in it can be understood: it cannot be told whether the store in {} is this run's still, "
      "or another run has been begun there or has gone on with it",
      store_number_file().string(), joined(stores));
}

void RunFolder::check_claim(std::span<const fs::path> stores, const Log& log) const {
  const std::string lost = lost_claim_words(stores);
  if (lost.empty()) return;
  std::error_code error;
  if (stores.size() == 1 && fs::equivalent(stores.front(), folder_, error)) return say(log, LogLevel::kWarning, lost);
  throw ConfigError(lost + ": make sure that it is, remove that file and say this again");
}

void RunFolder::refuse_without_store(std::span<const fs::path> stores) const {
  throw ConfigError(
      fmt::format("{}: the run's store is not in {} any more: it was trimmed or removed, or its drive is not mounted; "
                  "bring it back, or begin again with train --overwrite",
                  folder_.string(), joined(stores)));
}

void RunFolder::remove_leftovers() const {
  static const std::regex kPending(R"((.*)\.[0-9a-f]{8}\.tmp)");
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    std::smatch of;
    if (!std::regex_match(name, of, kPending)) continue;
    const auto is_of = [&](const fs::path& own) { return own.filename() == of[1].str(); };
    if (std::ranges::any_of(files(), is_of)) fs::remove(entry.path(), error);
  }
}

void RunFolder::check_store(const std::vector<fs::path>& stores) const {
  const std::optional<uint64_t> own = store_number();
  if (!own) return;
  for (const fs::path& store : stores) {
    if (RecordStore::store_number(store).value_or(*own) == *own) continue;
    const auto is_own = [&](const fs::path& other) { return RecordStore::store_number(other) == own; };
    const std::string_view remedy = std::ranges::any_of(stores, is_own)
                                        ? " or put in the place of this run's drive, whose other drives are there: put "
                                          "that one back, or, where it is gone, begin"
                                        : ": this run's own is gone; begin";
    throw ConfigError(
        fmt::format("{}: the store in {} is another run's, begun there since{} it again with --overwrite "
                    "and a folder of its own (sluice.nvme)",
                    folder_.string(), store.string(), remedy));
  }
}

fs::path without_end_slash(fs::path path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

namespace {

// What a file would be written to: the end of symbolic links, whether it is there or not.
fs::path written_to(fs::path file) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code error;
  for (int links = 0; links < kMostLinks && fs::is_symlink(file, error); ++links) {
    file = file.parent_path() / fs::read_symlink(file, error);
  }
  return file;
}

}  // namespace

bool RunFolder::is_own(const fs::path& named) const {
  const fs::path file = written_to(named);
  const auto folder_of = [](const fs::path& one) {
    std::error_code error;
    const fs::path folder = fs::absolute(one).parent_path(), found = fs::weakly_canonical(folder, error);
    return error ? folder : found;
  };
  if (file.empty() || folder_of(file) != folder_of(config_file())) return false;
  const fs::path name = file.filename();
  const auto is_named = [&name](const fs::path& own) { return own.filename() == name; };
  return std::ranges::any_of(files(), is_named) || name.extension() == ".cache" || name.extension() == ".swap";
}

namespace {

struct ChangedKey {
  std::string key, was, is;
};

// Of flat objects.
std::vector<ChangedKey> changed_keys(const SortedJson& before, const SortedJson& now) {
  SortedJson all = before;
  all.update(now);
  std::vector<ChangedKey> changed;
  for (const auto& [key, last] : all.items()) {
    const auto value = [&key = key](const SortedJson& keys) {
      return keys.contains(key) ? keys[key].dump() : std::string("not given");
    };
    if (value(before) != value(now)) changed.push_back({key_path(key), value(before), value(now)});
  }
  return changed;
}

// What may be chosen anew when a run goes on.
SortedJson free_keys(const RunConfig& config) {
  const SortedJson all = SortedJson::parse(to_json(config));
  SortedJson kept = SortedJson::object();
  for (const char* key : {"optimizer", "scheduler", "gradient_clipping", "fp16"}) {
    if (all.contains(key)) kept[key] = all[key];
  }
  return flat_keys(kept);
}

}  // namespace

void check_same_run(const RunConfig& before, const RunConfig& now, const fs::path& folder) {
  for (const auto& [key, was, is] : changed_keys(deciding_keys(before), deciding_keys(now))) {
    throw ConfigError(
        fmt::format("{}: the run there has \"{}\" {} and not {}: resume it as it was, or begin again with --overwrite",
                    folder.string(), key, was, is));
  }
}

void say_what_changed(const RunConfig& before, const RunConfig& now, const Log& log) {
  std::vector<std::string> words;
  for (const auto& [key, was, is] : changed_keys(free_keys(before), free_keys(now))) {
    words.push_back(fmt::format("\"{}\" {} (was {})", key, is, was));
  }
  if (words.empty()) return;
  say(log, LogLevel::kWarning, fmt::format("changed since the run was last begun: {}", fmt::join(words, ", ")));
}

void warn_of_other_sums(const RunConfig& before, const RunConfig& now, const Log& log) {
  const auto compare = [&log](const char* key, int64_t was, int64_t is) {
    if (was == is || was == 0) return;  // 0: not known of a run before
    say(log, LogLevel::kWarning,
        fmt::format("\"{}\" is {}: the run goes on, but not bit for bit as it would have under {}", key, is, was));
  };
  compare("train_micro_batch_size_per_gpu", before.batch.micro, now.batch.micro);
  compare("sluice.compute_threads", before.sluice.compute_threads, now.sluice.compute_threads);
  compare("sluice.loss_tile_tokens", before.sluice.loss_tile_tokens, now.sluice.loss_tile_tokens);
}

void check_each_drive(const std::vector<fs::path>& stores) {
  for (size_t i = 0; i < stores.size(); ++i) {
    if (find_store(stores[i]) == StoreExists::kYes) continue;
    throw ConfigError(
        fmt::format("drive {} of the store is missing: there is no {}; is the drive mounted? bring it back, or begin "
                    "again with train --overwrite",
                    i, store_path(stores[i], 0).string()));
  }
}

std::string joined(std::span<const fs::path> folders, std::string_view between) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.string());
  return fmt::format("{}", fmt::join(names, between));
}

}  // namespace sluice
