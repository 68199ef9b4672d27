#include <fmt/format.h>

#include <memory>
#include <optional>

#include "app/commands.h"
#include "app/setup.h"
#include "core/errors.h"
#include "engine/store_identity.h"

namespace sluice {

namespace {

constexpr int kDepth = 32;

std::unique_ptr<RecordStore> open_store(const RunFolder& folder, const Log& log) {
  RunConfig config = folder.load();
  config.model = without_folder(config.model);
  const std::vector<std::filesystem::path> folders = folder.stores(config);
  const std::optional<StoreIdentity> found = RecordStore::identify(folders.front());
  if (!found) {
    throw ConfigError(fmt::format("{}: the run's store is not there, or its headers are not whole; it was made in {}",
                                  folder.path().string(), joined(folders)));
  }
  folder.check_store(folders);
  const RunSetup setup = set_up(std::move(config), log);
  const PlanOptions plan = plan_options(setup, {});
  const Geometry geometry(setup.model.spec().partitions, found->chunk_elements);
  StoreOptions options = engine_options(setup, plan, folders, log).store;
  options.access = Drive::Access::kReadWhereItMust;
  options.queue.depth = kDepth;
  std::unique_ptr<RecordStore> store =
      RecordStore::open(geometry, store_identity(setup.model.spec(), plan, geometry), std::move(options));
  if (!store) throw ConfigError(fmt::format("{}: nothing is committed there yet", joined(folders)));
  return store;
}

// What is wrong with it; empty: it is whole.
std::string damage_of(RecordStore& store, int64_t step, Console& console) {
  try {
    store.verify(step,
                 [&](int64_t done, int64_t all) { console.progress(done, all, fmt::format("reading step {}", step)); });
    console.finish_progress();
    return "";
  } catch (const CorruptionError& error) {
    console.finish_progress();
    return error.what();
  }
}

}  // namespace

Verified run_verify(const std::string& path, Console& console) {
  const RunFolder folder(path);
  const std::unique_ptr<RecordStore> store = open_store(folder, console.log());
  const std::vector<int64_t> steps = store->openable_steps();
  Verified end = Verified::kWhole;
  for (const int64_t step : steps) {
    const bool last = step == steps.front();
    const std::string damage = damage_of(*store, step, console);
    if (last && !damage.empty()) end = Verified::kDamaged;
    console.print(damage.empty()
                      ? fmt::format("step {} is whole{}", step,
                                    last ? ""
                                    : end == Verified::kDamaged
                                        ? fmt::format(": train --resume --from-step {} goes on from it", step)
                                        : ", too")
                      : damage);
  }
  return end;
}

}  // namespace sluice
