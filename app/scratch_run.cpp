#include "app/scratch_run.h"

#include <utility>

#include "app/store_words.h"
#include "core/random.h"

namespace sluice {

namespace fs = std::filesystem;

MadeUpTokens::MadeUpTokens(const RunSetup& setup) {
  const auto count = static_cast<size_t>(setup.config.batch.train * setup.model.options().sequence);
  const auto vocabulary = static_cast<double>(setup.model.config().vocab_size);
  for (std::vector<int64_t>* list : {&ids_, &targets_}) {
    for (size_t i = 0; i < count; ++i) {
      const double at = uniform_at(setup.config.seed_or_default(), list == &ids_ ? 0 : 1, i);
      list->push_back(static_cast<int64_t>(at * vocabulary));
    }
  }
}

ScratchRun::ScratchRun(RunSetup& setup, EngineOptions options, const ParameterSource& source, Progress progress)
    : setup_(setup), options_(std::move(options)) {
  const auto scratch_in = [this](const fs::path& drive) {
    return (*folders_.insert(folders_.begin(), std::make_unique<ScratchFolder>(drive)))->path();
  };
  options_.store.folder = scratch_in(options_.store.folder);
  for (fs::path& folder : options_.store.more_folders) folder = scratch_in(folder);
  options_.open = OpenMode::kOverwrite;
  options_.store.names = FileNames::kTakenAway;
  options_.store.words = &kDriveWords;
  options_.progress = std::move(progress);
  engine_ = std::make_unique<Engine>(setup.model.spec(), options_, source);
  for (const auto& folder : folders_) folder->unlink_files();
  setup.model.use_memory(*engine_);
}

ScratchRun::~ScratchRun() { setup_.model.leave_memory(); }

}  // namespace sluice
