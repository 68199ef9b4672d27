// The folder of a run: the resolved configuration, metrics, tokenizer and tokens, and the store unless the
// configuration names another folder for that.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "configs/run_config.h"
#include "core/log.h"

namespace sluice {

// Move-only: held until it goes, or the process does.
class FolderLock {
 public:
  FolderLock() = default;
  explicit FolderLock(int file) : file_(file) {}
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FolderLock();
  bool is_held() const { return file_ >= 0; }
  int file() const { return file_; }

 private:
  int file_ = -1;
};

// Without a slash at its end, with which it would be another path than without.
std::filesystem::path without_end_slash(std::filesystem::path path);

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(without_end_slash(std::move(folder))) {}

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path config_file() const { return folder_ / "config.json"; }
  std::filesystem::path metrics_file() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path timeline_file() const { return folder_ / "timeline.json"; }  // of one step
  std::filesystem::path would_help_file() const { return folder_ / "would_help.json"; }
  std::filesystem::path data_cache() const { return folder_; }
  std::filesystem::path store_number_file() const { return folder_ / "store.json"; }
  // Whether it is one of the files above, of the text's or of the store's that a run writes here; links are followed.
  bool is_own(const std::filesystem::path& file) const;
  // Folders of the store, one for each drive.
  std::vector<std::filesystem::path> stores(const RunConfig& config) const;

  // One run at a time writes into a folder, wherever its store is. Throws ConfigError while another one does, IoError.
  FolderLock lock() const;
  // Throws ConfigError, IoError where what stands there keeps a run from writing its files.
  void check_files() const;
  // By its config.json: a run's, or somebody else's of that name.
  enum class Holds { kNothing, kRun, kOther };
  Holds holds() const;
  // For what: its values are compared with their checksums first, as far as they decide on that. Throws ConfigError
  // where they have been changed, or no run is there.
  enum class For : uint8_t { kTraining, kItsModel, kItsStore };
  RunConfig load(For what, std::span<const std::string> overrides = {}) const;
  // Whole or not at all. Throws IoError.
  void save(const RunConfig& config) const;
  // What the planner offers, as JSON text; empty: it has no speeds to offer by. Whole or not at all. Throws IoError.
  void save_would_help(const std::string& json) const;
  // The configuration of a run whose store is not there any more, and its claim to that. Throws IoError.
  void forget() const;
  // Writes down which store is the run's, where the run is, and the number under which this process opens it
  // (StoreOptions::opener), beside those before: before it does, so that one which is killed knows its own. Several
  // runs may name one folder of a drive, one after the other.
  void claim_store(const std::vector<std::filesystem::path>& stores, uint32_t opener) const;
  std::optional<uint64_t> store_number() const;  // nullopt: nothing is written down
  // The run that this folder is a copy of, if a store in one of these folders is that run's: what was written down was
  // another folder's claim, and a run with that store is there still. Of a run that was moved nullopt, and so where the
  // other folder may not be looked into.
  std::optional<std::filesystem::path> copied_from(std::span<const std::filesystem::path> stores) const;
  // Of a store's folders, the first drive's first: whether a run in another folder has opened the store to train on it
  // since this one did, a copy of this folder or the one that this is a copy of. The store tells, wherever that folder
  // is now; where it does not, no.
  bool has_gone_on_elsewhere(std::span<const std::filesystem::path> stores) const;
  void refuse_if_elsewhere(std::span<const std::filesystem::path> stores) const;  // with a ConfigError
  // For people, where what was written down is damaged; else empty.
  std::string lost_claim_words(std::span<const std::filesystem::path> stores) const;
  // Throws ConfigError where it is, or, of a store in this very folder, where no other run can be begun, warns.
  void check_claim(std::span<const std::filesystem::path> stores, const Log& log) const;
  [[noreturn]] void refuse_without_store(std::span<const std::filesystem::path> stores) const;  // with a ConfigError
  // Of a folder that is locked: files that a process left which was killed as it put them in their places.
  void remove_leftovers() const;
  // Throws ConfigError where another store than that lies in any of its folders now.
  void check_store(const std::vector<std::filesystem::path>& stores) const;

 private:
  std::vector<std::filesystem::path> files() const;        // that a run writes here, but the store's
  [[noreturn]] void refuse_without_run(Holds held) const;  // with a ConfigError
  // Where its configuration does not tell, it may.
  bool may_have_store_in(std::span<const std::filesystem::path> stores) const;

  std::filesystem::path folder_;
};

// Refuses to go on with a run under another configuration: throws ConfigError naming the first key that would change
// what is trained, with both values. Budgets, homes, threads, the optimizer and paths may change.
void check_same_run(const RunConfig& before, const RunConfig& now, const std::filesystem::path& folder);

// Of what may change, says which of the optimizer's, the schedule's, the clip's and the loss scale's keys have.
void say_what_changed(const RunConfig& before, const RunConfig& now, const Log& log);
// Of what may change, says what makes other sums: the run goes on with other last digits than it would have had.
void warn_of_other_sums(const RunConfig& before, const RunConfig& now, const Log& log);

// Their names, for messages.
std::string joined(std::span<const std::filesystem::path> folders, std::string_view between = ", ");

// Throws ConfigError for the first of a store's drives that is not there: its folder may be, and the drive not mounted.
void check_each_drive(const std::vector<std::filesystem::path>& stores);

// Where a run of this configuration file goes that is given no folder: "runs/NAME".
std::filesystem::path default_run_folder(const std::string& config);

// Folders of a store whose run is not known: those of the configuration, or the current one.
std::vector<std::filesystem::path> store_drives(const RunConfig& config);

}  // namespace sluice
