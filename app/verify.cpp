#include <fmt/format.h>

#include <memory>
#include <optional>

#include "app/commands.h"
#include "app/setup.h"
#include "app/store_words.h"
#include "core/errors.h"
#include "engine/store_identity.h"

namespace sluice {

namespace {

constexpr int kDepth = 32;

// Nothing in it says whose store it is.
[[noreturn]] void refuse_unknown(const std::filesystem::path& folder) {
  const std::filesystem::path file = store_path(folder, 0);
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown))
    throw CorruptionError(fmt::format(
        "{} is no regular file, as a store is: something else has its name; bring the store back, or begin again with "
        "--overwrite",
        file.string()));
  if (std::filesystem::file_size(file, unknown) == 0)
    throw CorruptionError(
        fmt::format("{} is empty: the store's creation was cut off, or it was emptied; bring it back, or "
                    "begin again with --overwrite",
                    file.string()));
  throw CorruptionError(fmt::format(
      "{}: neither copy of the store's header is whole, in its first blocks: bring the file back, or begin again with "
      "--overwrite",
      file.string()));
}

std::unique_ptr<RecordStore> open_store(const RunFolder& folder, const IoQueueFactory& make_queue, const Log& log) {
  auto [config, folders] = find_run(folder, RunFolder::For::kItsStore, {}, log);
  const std::optional<StoreIdentity> found = RecordStore::identify(folders.front());
  if (!found) refuse_unknown(folders.front());
  const RunSetup setup = set_up(std::move(config), log);
  const PlanOptions plan = plan_options(setup, {});
  const Geometry geometry(setup.model.spec().partitions, found->chunk_elements);
  StoreOptions options = engine_options(setup, plan, folders, log).store;
  options.access = StoreOptions::Access::kRead;
  options.unread = StoreOptions::Unread::kPassedOver;
  options.words = &kReadRunWords;
  options.queue.depth = kDepth;
  options.make_queue = make_queue;
  std::unique_ptr<RecordStore> store =
      RecordStore::open(geometry, store_identity(setup.model.spec(), plan, geometry), std::move(options));
  if (!store) throw ConfigError(fmt::format("{}: nothing is committed there yet", joined(folders)));
  return store;
}

struct Damage {
  std::string words;  // empty: it is whole
  bool is_read = true;
};
Damage damage_of(RecordStore& store, int64_t step, Console& console) {
  Damage damage;
  try {
    store.verify(step,
                 [&](int64_t done, int64_t all) { console.progress(done, all, fmt::format("reading step {}", step)); });
  } catch (const CorruptionError& error) {
    damage.words = error.what();
  } catch (const IoError& error) {
    damage = {.words = fmt::format("step {} cannot be read: {}", step, error.what()), .is_read = false};
  }
  console.finish_progress();
  return damage;
}

}  // namespace

Verified run_verify(const VerifyCommand& command, Console& console) {
  const RunFolder folder(command.folder);
  const std::unique_ptr<RecordStore> store = open_store(folder, command.make_queue, console.log());
  Verified end = Verified::kWhole;
  const std::optional<int64_t> lost = store->lost_step();
  if (lost || store->has_unread_commit()) end = Verified::kDamaged;
  if (lost) {
    console.print(fmt::format("step {} is not whole: its commit {}", *lost,
                              store->has_unread_commit() ? "cannot be read" : "is damaged, or was cut off"));
  } else if (store->has_unread_commit()) {
    console.print("a superblock cannot be read: it may be that of a later step");
  }
  bool any_whole = false;
  for (const int64_t step : store->openable_steps()) {
    const bool last = step == store->committed().step;
    const Damage damage = damage_of(*store, step, console);
    if (!damage.words.empty()) {
      console.print(damage.words);
      if (last) end = Verified::kDamaged;
      if (!last && damage.is_read) {
        console.print(fmt::format(
            "steps after {} write over step {} before they are committed: where the run was cut off this is no damage, "
            "and where it ended the drive has changed it",
            store->committed().step, step));
      }
      continue;
    }
    std::string words = fmt::format("step {} is whole{}", step, any_whole ? ", too" : "");
    if (!any_whole && end == Verified::kDamaged) {
      const bool is_asked_for = last && !store->has_unread_commit();
      words +=
          fmt::format(": train --resume{} goes on from it", is_asked_for ? "" : fmt::format(" --from-step {}", step));
    }
    console.print(words);
    any_whole = true;
  }
  if (store->openable_steps().size() < 2) console.print("there is no step before it to go back to");
  if (!any_whole) {
    console.print(
        "no step is whole: look at the drive's health (dmesg) and its cables, see that no drive's file is an older "
        "copy than the others', and verify again; what cannot be brought back is begun again with --overwrite");
  }
  return end;
}

}  // namespace sluice
